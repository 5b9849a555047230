#!/bin/sh
# families_test.sh SOURCE ALL SOME [CORE]: programs run_model of three libraries. SOME must give the bits of ALL for
# models of its families and refuse others; CORE, without families, must refuse each.
set -eu
source=$1 all=$2 some=$3 core=${4:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 "$source/tests/install/tiny_model.py" "$folder"
# Read as other operators (ops/expand.cpp), which the core lacks.
PYTHONPATH=$source/tests/install python3 -B -c 'import sys
from tiny_model import FLOAT, model, node, port
nodes = [node("DynamicQuantizeLinear", ["x"], "y")]
open(sys.argv[1], "wb").write(model(nodes, [port("x", FLOAT, [3])], [port("y", 2, [3])]))' "$folder/expanded.onnx"
fail() {
  echo "FAILED: $*"
  exit 1
}

# PROGRAM MODEL: each reports the operators that it lacks.
refuses() {
  if "$1" "$2" > "$folder/said"; then fail "$1 runs $2"; fi
  head -n 1 "$folder/said"
  grep -q 'the operator is not supported' "$folder/said" || fail "$1 does not name what it lacks of $2"
}

for model in "$folder/rgb.onnx" "$folder/segment.onnx" resnet50 squeezenet1.1; do
  for data in "$source/shared/data" "$source/../shared/data"; do
    if [ -e "$data/models/$model.onnx" ]; then model=$data/models/$model.onnx; fi
  done
  if [ ! -e "$model" ]; then
    echo "$model: not on this machine"
    continue
  fi
  "$all" "$model" > "$folder/all" || fail "$(cat "$folder/all")"
  "$some" "$model" > "$folder/some" || fail "$(cat "$folder/some")"
  echo "$model: $(cat "$folder/some")"
  cmp "$folder/all" "$folder/some" || fail "$model: other bits than with all families: $(cat "$folder/all")"
  if [ -n "$core" ]; then refuses "$core" "$model"; fi
done
if [ "$some" != "$all" ]; then refuses "$some" "$folder/voxels.onnx"; fi
if [ -n "$core" ]; then refuses "$core" "$folder/expanded.onnx"; fi
