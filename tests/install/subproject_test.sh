#!/usr/bin/env bash
# subproject_test.sh SOURCE FOLDER: builds in FOLDER an app with lenslet by add_subdirectory, runs it, and checks what
# reached the app.
set -euo pipefail
source=$1 folder=$2
fail() { echo "subproject_test: $*" >&2; exit 1; }

# Warnings as errors, and the same path of what CMake generates, as in the neighbouring build (for ccache): everything
# else is an app's default.
cmake -G Ninja -S "$source/tests/install/subproject_app" -B "$folder" -DLENSLET_SOURCE="$source" -DLENSLET_WERROR=ON \
  -DLENSLET_GENERATED="$folder/generated" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
cmake --build "$folder"
python3 "$source/tests/install/tiny_model.py" "$folder"
[ "$("$folder/app" "$folder/rgb.onnx")" = "150528 elements in, 3 out" ] || fail "wrong answer"

commands() { sed -n 's/^ *"command": //p' "${2:-$folder}/compile_commands.json" | grep -e "-c $1"; }
app=$(commands "$source/tests/install/subproject_app/main.cpp")
[ "$(tr ' ' '\n' <<<"$app" | grep -E '^-(I|isystem)')" = "-I$source/include" ] || fail "include paths: $app"
if grep -E -e ' -(W|O|f|D)' <<<"$app"; then fail "flags of lenslet's reached the app"; fi
[[ $(commands "$source/base/format.cpp") = *" -O3 "*" -ffp-contract=off "* ]] || fail "lenslet lost its own flags"
# ccache compiles sources that do not ask for CUDA once for both folders (.ci/run): 700 s of processor time.
neighbour=${folder%-subproject}
if grep -q '^CMAKE_BUILD_TYPE:STRING=Release$' "$neighbour/CMakeCache.txt"; then
  for file in base/format.cpp ops/conv/cpu/direct.cpp runtime/exec/place.cpp; do
    options() { commands "$source/$file" "$1" | sed -E "s#$1/#@/#g; s# -isystem [^ ]*/cuda[^ ]*/include##g; s# -o .*##" | sort -u; }
    here=$(options "$folder") there=$(options "$neighbour")
    [ -n "$here" ] || fail "$file is not compiled"
    [ "$here" = "$there" ] || fail "$file is compiled twice: $here there $there"
  done
fi

targets=$(cmake --build "$folder" --target help)
if grep -E '^(lenslet-|lenslet_(shared|oracle|check|tool))' <<<"$targets"; then fail "more than the library is built"; fi
if grep -E '^(CMAKE_BUILD_TYPE:.*=.|CMAKE_INSTALL_BINDIR|CMAKE_CUDA_)' "$folder/CMakeCache.txt"; then
  fail "settings of lenslet's are in the app's cache"
fi
DESTDIR=$folder/stage cmake --install "$folder"
[ ! -e "$folder/stage" ] || fail "the app's install has lenslet in it: $(find "$folder/stage" -type f | head -n 1)"
if ctest --test-dir "$folder" -N | grep "Test *#"; then fail "the app has lenslet's tests"; fi
