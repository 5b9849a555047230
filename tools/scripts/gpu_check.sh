#!/usr/bin/env bash
# Runs everything that needs a GPU, from a build folder, on the machine that has one: the device tests, the shared models
# layer by layer, compute-sanitizer, and the benchmarks. A step that fails does not stop the others; a table of all steps
# comes last, and the exit status is 1 when one failed.
# The build folder may come from another machine: configure it with `cmake --preset cuda` there; --pack copies what is
# needed out of it.
#
# usage: tools/scripts/gpu_check.sh [--only PARTS] [--shared FOLDER] [BUILD_FOLDER]
#                                    default build/cuda; logs go to results/gpu-check/ ($OUT overrides)
#        tools/scripts/gpu_check.sh --pack FOLDER [BUILD_FOLDER]
#   --only PARTS     of tests,models,sanitize,bench,peers,cpu, comma-separated; default all but peers and cpu:
#                      tests     device, operator, convolution and runner tests
#                      models    shared models: reference outputs, verify, check, classify against the CPU; ONNX's cases
#                      sanitize  memcheck, racecheck, initcheck and synccheck over the tests at reduced size
#                      bench     data movement, convolutions, networks
#                      peers     networks beside PyTorch and layers beside cuDNN, in each arithmetic; needs PyTorch with
#                                torchvision, and bench-cudnn in the build folder
#                      cpu       the CPU tests of the layers: this machine's CPU may have instructions (AVX-512) that
#                                the machine the build comes from lacks, and their kernels have then run nowhere yet
#   --shared FOLDER  where the shared models lie; default ../shared/data. Without it that part is skipped, by name
#   --pack FOLDER    writes to FOLDER the executables, without symbols, and the shared libraries that they bring along
set -euo pipefail
cd "$(dirname "$0")/../.."
fail() { echo "gpu_check: $*" >&2; exit 1; }

layers=(base ops graph exec)
parts=tests,models,sanitize,bench
shared=../shared/data
pack=
while [ $# -gt 0 ]; do
  case $1 in
    --only) [ $# -ge 2 ] || fail "--only needs a list"; parts=$2; shift 2 ;;
    --shared) [ $# -ge 2 ] || fail "--shared needs a folder"; shared=$2; shift 2 ;;
    --pack) [ $# -ge 2 ] || fail "--pack needs a folder"; pack=$2; shift 2 ;;
    -h | --help) sed -n '2,25s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) fail "unknown option '$1'; see --help" ;;
    *) break ;;
  esac
done
build=${1:-build/cuda}
out=${OUT:-results/gpu-check}

lenslet=$build/tools/lenslet
tests=$build/tests/cuda/lenslet-test-cuda
op_tests=$build/tests/cuda/lenslet-test-cuda-ops
tool_tests=$build/tests/tools/lenslet-test-tools
check_tests=$build/tests/check/lenslet-test-check
benches=$build/tools/measuring/cuda
bench=$benches/lenslet-bench-cuda
wants() { case ,$parts, in *,"$1",*) true ;; *) false ;; esac; }
programs=("$lenslet" "$tests" "$op_tests" "$tool_tests" "$check_tests")
if wants bench; then programs+=("$bench"); fi
for program in "${programs[@]}"; do
  [ -x "$program" ] || fail "$program is not there: build with 'cmake --preset cuda && cmake --build --preset cuda' and," \
    "for its part bench, '--target benches-cuda'"
done

if [ -n "$pack" ]; then
  [ -d "$build/portable" ] || fail "$build/portable is not there: configure with LENSLET_PORTABLE=ON (preset cuda)"
  for extra in tools/measuring/cuda/lenslet-bench-{implicit-gemm,winograd,fft,gemm-cute,separable,sparse-conv,stem-pool} \
    tools/peers/cudnn/bench-cudnn; do
    [ ! -x "$build/$extra" ] || programs+=("$build/$extra")
  done
  [ ! -f "$build/python/liblenslet_python.so" ] || programs+=("$build/python/liblenslet_python.so")
  for layer in "${layers[@]}"; do programs+=("$build/tests/$layer/lenslet-test-$layer"); done
  for program in "${programs[@]}"; do
    mkdir -p "$pack/$(dirname "${program#"$build"/}")"
    strip -o "$pack/${program#"$build"/}" "$program" || fail "$program could not be copied"
  done
  cp -r "$build/portable" "$build/share" "$pack/"
  du -sh "$pack"
  exit 0
fi

"$lenslet" devices | grep -Eq '^cuda:[0-9]+ +usable' || fail "no usable CUDA device here; '$lenslet devices' says why"
mkdir -p "$out"
: >"$out/summary.txt"
failed=0
# note STATE NAME WORDS...: a line of the table.
note() { printf '%-8s %-34s %s\n' "$1" "$2" "${*:3}" >>"$out/summary.txt"; }
# step NAME COMMAND...: output to NAME.log and its end to the terminal.
step() {
  local name=$1 begin=$SECONDS state=passed
  shift
  echo "== $name: $*"
  if ! timeout 300 "$@" >"$out/$name.log" 2>&1; then # a kernel that never ends must not block the rest
    state=FAILED
    failed=1
    grep -E "ERROR|error|FAILED|Error" "$out/$name.log" | head -n 12 || true
  fi
  grep -E "skipped[,:]" "$out/$name.log" | head -n 5 || true # with a single device one test of two reports that
  tail -n 4 "$out/$name.log"
  note $state "$name" "$((SECONDS - begin)) s: $(grep -E '[^[:space:]]' "$out/$name.log" | tail -n 1 | cut -c 1-90)"
}

# sharded NAME PROGRAM COMMAND...: runs COMMAND, which ends with a doctest PROGRAM, in one process a core (at most 14),
# each with its share of the test cases: references in double take longer than kernels, and use one core.
sharded() {
  local name=$1 program=$2 begin=$SECONDS shards state=passed
  shift 2
  shards=$(($(nproc) < 14 ? $(nproc) : 14))
  local -a cases running=()
  mapfile -t cases < <("$program" --list-test-cases | grep -v -e '^\[doctest\]' -e '^===')
  echo "== $name: $* (${#cases[@]} cases, $shards processes)"
  local shard i
  for ((shard = 0; shard < shards; ++shard)); do
    local mine=()
    for ((i = shard; i < ${#cases[@]}; i += shards)); do mine+=("${cases[i]}"); done
    [ ${#mine[@]} -gt 0 ] || continue
    (IFS=, && exec timeout 540 "$@" --duration=true "--test-case=${mine[*]}") >"$out/$name.shard$shard.log" 2>&1 &
    running+=($!)
  done
  for i in "${running[@]}"; do wait "$i" || state=FAILED; done
  cat "$out/$name".shard*.log >"$out/$name.log"
  rm -f "$out/$name".shard*.log
  if [ $state = FAILED ]; then
    failed=1
    grep -E "ERROR|error|FAILED|Error" "$out/$name.log" | head -n 12 || true
  fi
  grep -E "skipped[,:]" "$out/$name.log" | grep -v doctest | head -n 5 || true
  local words
  words=$(awk '/^\[doctest\] test cases:/ {gsub(/\|/, " "); passed += $5; failed += $7}
    /SUMMARY:/ {sub(/^=+ /, ""); print "; " $0} END {print passed " passed, " failed " failed"}' "$out/$name.log" |
    sort | uniq -c | sed 's/^ *[0-9]* //' | tr '\n' ' ')
  note $state "$name" "$((SECONDS - begin)) s: $words"
}

step devices "$lenslet" devices

if wants cpu; then
  for layer in "${layers[@]}"; do
    # The test looks for docs/ops.md in the sources of the build.
    step "cpu-$layer" "$build/tests/$layer/lenslet-test-$layer" --test-case-exclude=op_table/docs_are_up_to_date
  done
fi

if wants tests; then
  step device-tests "$tests"
  step layer-checks "$check_tests"
  sharded op-tests "$op_tests" "$op_tests"
  # The Python package with PyTorch tensors on the device.
  library=$(realpath "$build/python/liblenslet_python.so")
  if [ -f "$library" ] && python3 -c 'import numpy, torch' 2>/dev/null; then
    step python env PYTHONPATH="$PWD/python:$PWD/tests/python" LENSLET_LIBRARY="$library" \
      python3 -B -m unittest -v torch_test models_test runner_test
  else
    note skipped python "no PyTorch, or no $library"
  fi
fi

models=(squeezenet1.1 resnet50 mobilenetv2-nhwc mnist-cntk cifar10-cnn4 cifar10-resnet20 ultraface-rfb-320
  blazeface-front-128 waifu2x-vgg7 super-resolution-x3 ppocr-cls-mobilenetv3)
if wants models; then
  if [ -d "$shared" ]; then
    step reference-outputs "$tool_tests" --test-case='reference/cuda/*'
    step stored-classes "$tool_tests" --test-case='classify/cuda/*'
    for model in "${models[@]}"; do
      file=$shared/models/$model.onnx
      if [ ! -f "$file" ]; then note skipped "verify-$model" "no $file"; continue; fi
      free=() # models with a free size
      case $model in
        waifu2x-vgg7) free=(--shape input=1x3x60x52) ;;
        super-resolution-x3) free=(--shape input=1x1x60x52) ;;
        ppocr-cls-mobilenetv3) free=(--shape x=1x3x48x192) ;;
      esac
      for precision in fp32 tf32 fp16 bf16; do
        step "verify-$model-$precision" "$lenslet" verify "$file" --device cuda --conv-algorithm all \
          --precision $precision "${free[@]}"
      done
    done
    for cases in generated-ops onnxjs-ops; do
      if [ -d "$shared/$cases" ]; then
        step "check-$cases" "$lenslet" check "$shared/$cases" --device cuda
      else
        note skipped "check-$cases" "no $shared/$cases"
      fi
    done
    for model in squeezenet1.1 resnet50 mobilenetv2-nhwc; do
      file=$shared/models/$model.onnx
      [[ -f $file && -d $shared/images/photos ]] || continue
      for precision in fp32 tf32 fp16 bf16; do
        step "classify-$model-$precision" python3 tools/scripts/same_classes.py --precision $precision "$lenslet" \
          "$file" "$shared/images/photos"
      done
    done
  else
    note skipped models "no $shared"
  fi
fi

# ONNX's own cases, for tools/scripts/conformance.py --cuda.
if wants models; then
  for cases in build/peers/onnx-cases /usr/share/libonnx-testdata/data; do
    if [ -d "$cases" ]; then
      step "check-$(basename "${cases%/data}")" "$lenslet" check "$cases" --device cuda --json
    else
      note skipped "check-$(basename "${cases%/data}")" "no $cases"
    fi
  done
fi

if wants sanitize; then
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
  [ -n "$sanitizer" ] || fail "compute-sanitizer is not installed (it comes with the CUDA toolkit)"
  export LENSLET_TEST_REDUCED=1 # every seventh convolution problem
  for tool in memcheck racecheck initcheck synccheck; do
    options=(--tool "$tool" --error-exitcode 9)
    [ "$tool" != memcheck ] || options+=(--leak-check full)
    # Calls that tests make fail on purpose are no errors; faults inside kernels are. One process, since some tests
    # check the device's free memory.
    step "$tool-device" "$sanitizer" "${options[@]}" --report-api-errors no "$tests" --duration=true
    sharded "$tool-ops" "$op_tests" "$sanitizer" "${options[@]}" --report-api-errors no "$op_tests"
  done
  unset LENSLET_TEST_REDUCED
fi

if wants bench; then
  step bench-movement "$bench"
  for set in seeds resnet50 vgg16 mobilenet_v2 squeezenet; do
    step "bench-conv-$set" "$lenslet" bench conv --set "$set" --batch 1 --all-algorithms --same-buffers \
      --device cuda
  done
  for set in resnet50 mobilenet_v2; do
    for precision in tf32 fp16; do
      step "bench-conv-$set-$precision" "$lenslet" bench conv --set "$set" --batch 64 --all-algorithms \
        --device cuda --precision $precision
    done
  done
  [ ! -x "$benches/lenslet-bench-gemm-cute" ] ||
    step bench-gemm-cute "$benches/lenslet-bench-gemm-cute" --type=fp16
  for model in squeezenet1.1 resnet50 mobilenetv2-nhwc; do
    for precision in fp32 tf32 fp16; do
      [ ! -f "$shared/models/$model.onnx" ] || step "bench-$model-$precision" "$lenslet" bench \
        "$shared/models/$model.onnx" --device cuda --batch 1,8,64 --precision $precision
    done
    [ ! -f "$shared/models/$model.onnx" ] || step "layers-$model" "$lenslet" layers "$shared/models/$model.onnx" --device cuda
  done
fi

if wants peers; then
  # Batch 64 comes first, as the most informative if the run is cut short.
  networks=resnet50,mobilenet_v2,vgg16,squeezenet1_1,resnet18,efficientnet_b0,googlenet,densenet121,resnext50_32x4d
  networks+=,regnet_y_400mf,shufflenet_v2_x1_0,inception_v3
  if python3 -c 'import torch, torchvision' 2>/dev/null; then
    for precision in fp16 tf32 bf16; do
      step "peers-$precision" python3 tools/peers/bench_gpu_peers.py "$lenslet" --precision $precision \
        --networks $networks --batches 64,8,1 --rounds 1 --no-compile
    done
  else
    note skipped peers "no PyTorch with torchvision"
  fi
  cudnn=$build/tools/peers/cudnn/bench-cudnn
  if [ -x "$cudnn" ]; then
    for precision in fp16 tf32 fp32; do
      # Apart: a search over all engines takes a second or two a layer, and a step 300 at most.
      for batch in 1 64; do
        step "cudnn-$precision-$batch" "$cudnn" --precision $precision --batch $batch --seconds 0.02
      done
    done
  else
    note skipped cudnn "no $cudnn"
  fi
fi

echo
echo "== gpu_check: $out/summary.txt"
cat "$out/summary.txt"
exit $failed
