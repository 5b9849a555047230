#!/usr/bin/env bash
# Builds the Python wheel for all Linux distributions of x86-64 from glibc 2.28 on: one file for every Python from 3.9,
# with everything in it but glibc, libgcc and NVIDIA's driver.
#
# usage: tools/scripts/build_wheel.sh [--cpu] [--quick] [FOLDER]
#   --cpu    without the CUDA half (else with it, where nvcc is found)
#   --quick  CUDA's kernels as CI compiles them, which are slower (LENSLET_CUDA_QUICK): for a wheel that is only tried
#   FOLDER   where the wheel and the sdist go; default: build/dist
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/scripts/deps.sh
trap 'die "stopped at line $LINENO"' ERR

quick=OFF cuda=AUTO folder=build/dist
while [ $# -gt 0 ]; do
  case $1 in
    --cpu) cuda=OFF; shift ;;
    --quick) quick=ON; shift ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) die "unknown option '$1'; see --help" ;;
    *) folder=$1; shift ;;
  esac
done

say "installing what is missing"
install_missing "${lenslet_build_packages[@]}" "${lenslet_wheel_packages[@]}"
make_cutlass
make_wheel_tools
make_static_libraries

say "building the wheel (build/wheel)"
# Warnings as errors, and no line information: the flags of build/test in CI, so that ccache has the objects.
# Else what Python was built with.
export CC=${CC:-cc} CXX=${CXX:-c++}
rm -rf build/wheel-raw
build/wheel-tools/bin/python -m build --outdir build/wheel-raw --no-isolation --skip-dependency-check --sdist --wheel \
  -Cbuild-dir=build/wheel -Ccmake.define.LENSLET_CUDA=$cuda -Ccmake.define.LENSLET_WERROR=ON \
  -Ccmake.define.LENSLET_CUDA_QUICK=$quick \
  -Ccmake.define.LENSLET_STATIC="$PWD/build/static" . >build/wheel.log 2>&1 ||
  { tail -n 30 build/wheel.log >&2; die "the build failed (log: build/wheel.log)"; }
mkdir -p "$folder"
rm -f "$folder"/lenslet{-,_runtime-}*
cp build/wheel-raw/*.tar.gz "$folder"
# Names the platform, and refuses a wheel that needs a newer system or another library.
PATH=$PWD/build/wheel-tools/bin:$PATH auditwheel repair --plat manylinux_2_28_x86_64 \
  --only-plat -w "$folder" build/wheel-raw/*.whl >>build/wheel.log 2>&1 || die "the wheel is no manylinux_2_28 wheel (log: build/wheel.log)"
# Otherwise the flags are those of Python's own build.
export CC=${CC:-cc} CXX=${CXX:-c++}
rm -rf build/wheel-raw
ls -l "$folder"
