#!/usr/bin/env bash
# Runs everything that needs a GPU, from a build folder, on the machine that has one: the device tests, the same tests
# under compute-sanitizer (memcheck, racecheck, initcheck), and last the elementwise kernel's share of copy bandwidth.
# The build folder may come from another machine: configure it with `cmake --preset cuda` there; --pack copies what is
# needed out of it, some 20 MiB.
#
# usage: tools/gpu_check.sh [--cpu] [BUILD_FOLDER]       default build/cuda; logs go to results/gpu-check/ ($OUT overrides)
#        tools/gpu_check.sh --pack FOLDER [BUILD_FOLDER]
#   --cpu   first also the CPU tests of the layers: this machine's CPU may have instructions (AVX-512) that the machine
#           the build comes from lacks, and the kernels for them have then run nowhere yet
#   --pack  writes to FOLDER the executables, without symbols, and the shared libraries that they bring along
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "gpu_check: $*" >&2; exit 1; }

layers=(base ops graph exec)
with_cpu=0
pack=
while [ $# -gt 0 ]; do
  case $1 in
    --cpu) with_cpu=1; shift ;;
    --pack) [ $# -ge 2 ] || fail "--pack needs a folder"; pack=$2; shift 2 ;;
    -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) fail "unknown option '$1'; see --help" ;;
    *) break ;;
  esac
done
build=${1:-build/cuda}
out=${OUT:-results/gpu-check}

tests=$build/tests/cuda/lenslet-test-cuda
bench=$build/tests/cuda/lenslet-bench-cuda
for program in "$tests" "$bench"; do
  [ -x "$program" ] || fail "$program is not there: build with 'cmake --preset cuda && cmake --build --preset cuda'"
done

if [ -n "$pack" ]; then
  [ -d "$build/portable" ] || fail "$build/portable is not there: configure with LENSLET_PORTABLE=ON (preset cuda)"
  programs=(tools/lenslet tests/cuda/lenslet-test-cuda tests/cuda/lenslet-bench-cuda)
  for layer in "${layers[@]}"; do programs+=("tests/$layer/lenslet-test-$layer"); done
  for program in "${programs[@]}"; do
    mkdir -p "$pack/$(dirname "$program")"
    strip -o "$pack/$program" "$build/$program" || fail "$build/$program could not be copied"
  done
  cp -r "$build/portable" "$pack/"
  du -sh "$pack"
  exit 0
fi

mkdir -p "$out"
# run NAME COMMAND...: output to the terminal and to NAME.log; the first failure ends the script.
run() {
  local name=$1
  shift
  echo "== $name: $*"
  "$@" 2>&1 | tee "$out/$name.log" || fail "$name failed (log: $out/$name.log)"
}

[ ! -x "$build/tools/lenslet" ] || run devices "$build/tools/lenslet" devices
if [ $with_cpu = 1 ]; then
  for layer in "${layers[@]}"; do
    program=$build/tests/$layer/lenslet-test-$layer
    [ -x "$program" ] || fail "$program is not there"
    # docs/ops.md is looked for where the sources lay when this was built.
    run "cpu-$layer" "$program" --test-case-exclude=op_table/docs_are_up_to_date
  done
fi

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
[ -n "$sanitizer" ] || fail "compute-sanitizer is not installed (it comes with the CUDA toolkit)"
run device-tests "$tests"
! grep -q "skipped, no usable CUDA device" "$out/device-tests.log" || fail "the tests were skipped: no usable device"
for tool in memcheck racecheck initcheck; do
  options=(--tool "$tool" --error-exitcode 9)
  [ "$tool" != memcheck ] || options+=(--leak-check full)
  # Calls that tests make fail on purpose are not errors of ours; faults inside kernels are.
  run "$tool" "$sanitizer" "${options[@]}" --report-api-errors no "$tests"
done
run bench-elementwise "$bench"
