#!/bin/sh
# option_test.sh CMAKE SOURCE: tests the configuration with -DLENSLET_FAMILIES and -DLENSLET_PICTURES, without building.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
configure() {
  "$1" -S "$2" -B "$folder" -G Ninja -DLENSLET_CUDA=OFF -DLENSLET_TOOLS=OFF "-DLENSLET_FAMILIES=$3" > "$folder/said" 2>&1
}
fail() {
  cat "$folder/said"
  echo "FAILED: $*"
  exit 1
}

configure "$1" "$2" pool,shape || fail "it does not configure"
grep -q 'Families of operators, with those that are needed: pool, shape, elementwise, movement, reduce$' "$folder/said" ||
  fail "the families are not named"
for file in ops/core/op ops/pool/pool ops/reduce/reduce runtime/passes/place_parts; do
  grep -q "${file##*/}.cpp.o: CXX_COMPILER.* .*/$file.cpp" "$folder/build.ninja" || fail "$file.cpp is not built"
done
if grep -E ': CXX_COMPILER.*/(ops|runtime/passes)/(conv|gemm|sparse|recurrent)/' "$folder/build.ninja"; then
  fail "a family that is left out is built"
fi
if configure "$1" "$2" pool,spares; then fail "an unknown family is not refused"; fi
tr -s ' \n' ' ' < "$folder/said" | grep -q "There is no family of operators 'spares'; there are: elementwise, " ||
  fail "the error does not name the unknown family"
if "$1" -S "$2" -B "$folder" -DLENSLET_FAMILIES=shape -DLENSLET_TOOLS=ON -DLENSLET_PICTURES=png > "$folder/said" 2>&1; then
  fail "an unknown reader of pictures is not refused"
fi
grep -q "LENSLET_PICTURES is 'png'; it has to be libraries or stb" "$folder/said" || fail "the error does not name it"
