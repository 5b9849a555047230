#!/usr/bin/env bash
# Installs what is missing, builds into build/test, and runs all tests. May be run twice; the second run only rebuilds
# what changed.
#
# usage: tools/test.sh [--sanitize | --deep] [--cuda] [--wheel] [--cluster] [-- CTEST_OPTIONS...]
#   --sanitize   afterwards also the whole suite under AddressSanitizer + UndefinedBehaviorSanitizer (build/asan) and
#                what uses threads (base, exec, c_api, photos, and of ops tests/ops/threads.txt) under ThreadSanitizer (build/tsan)
#   --deep       the same with nothing left out, which .ci/deep runs: the oracle sanitized, too, all tests of ops under
#                ThreadSanitizer, all that is drawn; and build/test without line information
#   --cuda       for CI: build/test must have the CUDA half (else it has, where nvcc is found), without line information,
#                which is a tenth of nvcc's time, and not optimised by nvcc, which is half of it
#   --wheel      also the Python wheel: built (tools/scripts/build_wheel.sh), installed into an empty environment, tried
#   --cluster    also the tests over Ray and Spark (1.2 GB from PyPI, and Debian's Java), which skip otherwise
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/scripts/deps.sh
trap 'die "stopped at line $LINENO"' ERR

sanitize=0 deep=OFF wheel=0 cluster=() cuda=() quick=()
while [ $# -gt 0 ]; do
  case $1 in
    --sanitize) sanitize=1; shift ;;
    --deep) sanitize=1 deep=ON cuda=(-DLENSLET_CUDA_LINE_INFO=OFF -DLENSLET_CUDA_QUICK=OFF -DLENSLET_PRECOMPILE=OFF); shift ;;
    --wheel) wheel=1; shift ;;
    --cluster) cluster=("${lenslet_cluster_packages[@]}"); shift ;;
    --cuda) cuda=(-DLENSLET_CUDA=ON -DLENSLET_CUDA_LINE_INFO=OFF -DLENSLET_CUDA_QUICK=ON -DLENSLET_PRECOMPILE=TESTS); shift ;;
    --) shift; break ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) die "unknown option '$1'; see --help" ;;
  esac
done

phase "installing what is missing"
install_missing "${lenslet_build_packages[@]}" "${lenslet_test_packages[@]}"
[ ${#cluster[@]} = 0 ] || install_missing "${lenslet_java_packages[@]}"
[ $sanitize = 0 ] || install_missing "${lenslet_sanitize_packages[@]}"
make_cutlass
# What tests alone use, more than a gigabyte with --cluster, is loaded while the first build compiles.
(make_peers; make_python_env "${cluster[@]}") &
environments=$!
[ -d ../shared/data ] || say "no ../shared/data: the tests over the shared models and photos will report as skipped"

# failures_in FOLDER: repeats each failed test's errors, else its last lines, at the end of the log, and the seed of
# random data (LENSLET_TEST_SEED).
failures_in() {
  local name output
  output=$(mktemp)
  while IFS=: read -r _ name; do
    say "failed in $1: $name"
    awk -v name="$name" '/^[0-9]+\/[0-9]+ Testing: / {own = substr($0, index($0, ": ") + 2) == name}
      /^<end of output>/ {own = inside = 0} inside {print} own && /^Output:/ {inside = 1}' \
      "$1/Testing/Temporary/LastTest.log" >"$output"
    if grep -qE "$lenslet_errors" "$output"; then
      grep -E -A 2 "$lenslet_errors" "$output" | grep -v LENSLET_TEST_SEED | head -n 40 || true
    else
      tail -n 20 "$output"
    fi
    grep LENSLET_TEST_SEED "$output" | tail -n 5 || true
  done <"$1/Testing/Temporary/LastTestsFailed.log"
  rm -f "$output"
}
lenslet_errors='ERROR|FAIL|Error|error:|what\(\)'

# run_tests FOLDER CTEST_OPTIONS...
run_tests() {
  local folder=$1
  shift
  [ -z "$environments" ] || wait "$environments" || die "the Python environments could not be made"
  environments=
  rm -f "$folder/Testing/Temporary/LastTestsFailed.log"
  ctest --test-dir "$folder" --output-on-failure --timeout 1200 --no-tests=error -j "$(nproc)" "$@" |
    tee "$folder/ctest.log" || {
    [ ! -e "$folder/Testing/Temporary/LastTestsFailed.log" ] || failures_in "$folder"
    die "tests failed in $folder (log: $folder/ctest.log)"
  }
}

if [ $sanitize = 1 ]; then
  # Failed allocations are Errors, tested as such, and must not end the process.
  export ASAN_OPTIONS=allocator_may_return_null=1 TSAN_OPTIONS=allocator_may_return_null=1
  # Sweeps over equivalent cases draw fewer of them: the Release tests below draw them all.
  [ $deep = ON ] || export LENSLET_TEST_REDUCED=1
  phase "building with AddressSanitizer and UndefinedBehaviorSanitizer: build/asan"
  configure build/asan --preset asan -DLENSLET_SANITIZE_ALL=$deep
  build build/asan
  phase "testing under AddressSanitizer and UndefinedBehaviorSanitizer"
  run_tests build/asan -LE install "$@"
  phase "building with ThreadSanitizer: build/tsan"
  configure build/tsan --preset tsan -DLENSLET_SANITIZE_ALL=$deep
  build build/tsan --target lenslet-test-base lenslet-test-ops lenslet-test-exec lenslet-test-c-api lenslet-test-photos
  phase "testing threads under ThreadSanitizer"
  run_tests build/tsan -L '^(base|ops|exec|c-api|photos)$' "$@"
  unset LENSLET_TEST_REDUCED
fi

phase "building: build/test"
configure build/test -DCMAKE_BUILD_TYPE=Release "${cuda[@]}"
build build/test
[ ${#cuda[@]} = 0 ] || ! command -v nvcc >/dev/null || build build/test --target benches-cuda # no test runs these
if [ $wheel = 1 ]; then
  phase "building the Python wheel"
  # With the kernels of build/test, which ccache has.
  if [ $deep = OFF ] && [ ${#cuda[@]} != 0 ]; then quick=(--quick); fi
  tools/scripts/build_wheel.sh "${quick[@]}"
  phase "testing the Python wheel"
  tests/python/wheel_test.sh build/dist
fi
phase "testing"
run_tests build/test "$@"
phases_done
grep '% tests passed' build/test/ctest.log # again, after CTest's lists of labels and skipped tests: the log's last line
