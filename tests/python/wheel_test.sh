#!/usr/bin/env bash
# wheel_test.sh FOLDER: tests the wheel of tools/scripts/build_wheel.sh like a user: in an empty virtual environment,
# its contents, and the sdist, which must be complete.
set -euo pipefail
folder=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
fail() { echo "wheel_test: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheels=("$folder"/*.whl) sdists=("$folder"/*.tar.gz)
[[ ${#wheels[@]} = 1 && ${#sdists[@]} = 1 ]] || fail "one wheel and one sdist were expected in $folder"

[[ ${wheels[0]} == */lenslet_runtime-*-py3-none-manylinux_2_28_x86_64.whl ]] || fail "of what Python and system is ${wheels[0]}?"
bytes=$(stat -c %s "${wheels[0]}")
[ "$bytes" -lt 40000000 ] || fail "the wheel has $bytes bytes; one for both halves has to stay below 40 MB"
python3 -m zipfile -l "${wheels[0]}" >"$work/contents"
[ "$(grep -c '[.]so' "$work/contents")" = 1 ] || fail "more than one library is in it"
for file in lenslet/py.typed lenslet/lib/liblenslet_python.so lenslet/share/lenslet/cards/resnet50.card.json \
  lenslet/share/licenses/libfmt-dev.txt lenslet/share/tools/scripts/fetch_default_model.sh; do
  grep -q "^$file " "$work/contents" || fail "$file is not in it"
done

# No PYTHONPATH and no library of a build folder: only the installed files.
unset PYTHONPATH LENSLET_LIBRARY
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-input --disable-pip-version-check "${wheels[0]}"
library=$("$work/venv/bin/python" -c 'import lenslet, pathlib; print(pathlib.Path(lenslet.__file__).parent / "lib/liblenslet_python.so")')
[[ $library == $work/venv/* ]] || fail "another lenslet was imported: $library"
others=$(nm -D --defined-only "$library" | grep -v ' T lenslet_' || true)
[ -z "$others" ] || fail "it exports what is not lenslet's: $others"
"$work/venv/bin/lenslet" --version
"$work/venv/bin/python" - <<'END' || fail "what pip knows of it is not lenslet-runtime"
import importlib.metadata as installed, lenslet
of = installed.metadata("lenslet-runtime")
assert of["Version"] == lenslet.__version__ and len(of.get_all("Project-URL")) >= 4, of
assert not [name for name in installed.packages_distributions()["lenslet"] if name != "lenslet-runtime"]
END
(cd "$here" && LENSLET_DEVICE=cpu "$work/venv/bin/python" -B -m unittest models_test runner_test pickling_test package_test pictures_test photos_test)

tar xf "${sdists[0]}" -C "$work"
# All compiled sources are included: the build's own list of objects, without compiling them.
cmake -G Ninja -S "$work"/lenslet_runtime-*/ -B "$work/build" -DLENSLET_CUDA=OFF -DLENSLET_TESTS=OFF -DLENSLET_INSTALL=OFF >"$work/log" ||
  fail "the sdist cannot be configured: $(tail -n 5 "$work/log")"
ninja -C "$work/build" -n lenslet_python >/dev/null || fail "the sdist is not whole"
echo "wheel_test: passed"
