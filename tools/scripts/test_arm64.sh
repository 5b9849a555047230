#!/usr/bin/env bash
# Compiles the CPU half and its tests for 64-bit ARM and runs them under qemu-user: NEON's only check on a machine that has
# none. Highway and fmt come as Debian's arm64 packages, unpacked into the build folder; nothing of arm64 is installed.
#
# usage: test_arm64.sh [FOLDER] [CTEST ARGUMENT...]      FOLDER: build/arm64; then say what ctest gets: -R conv/
# Some 10 minutes to build on two cores, and as many to run: no part of .ci/run.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tools/scripts/deps.sh
source tools/scripts/deps.sh

folder=$(realpath -m "${1:-build/arm64}")
shift || true
compiler=aarch64-linux-gnu-g++-12 triple=aarch64-linux-gnu
install_missing cmake ninja-build pkg-config libprotozero-dev doctest-dev g++-12-aarch64-linux-gnu qemu-user

# Headers that are independent of the architecture (doctest, protozero) come from this machine, all else from here.
root=$folder/root lists=$folder/lists
if [ ! -e "$root/unpacked" ]; then
  say "libhwy and libfmt for arm64"
  mkdir -p "$root/usr/include" "$lists/partial" "$folder/packages"
  apt=(apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::Lists=$lists"
       -o Dir::State::status=/dev/null -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
  "${apt[@]}" update
  (cd "$folder/packages" && "${apt[@]}" download libhwy1 libhwy-dev libfmt9 libfmt-dev)
  for package in "$folder"/packages/*.deb; do dpkg -x "$package" "$root"; done
  cp -r /usr/include/doctest /usr/include/protozero "$root/usr/include"
  touch "$root/unpacked"
fi

cat >"$folder/toolchain.cmake" <<END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER $compiler)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;/usr/$triple;-E;LD_LIBRARY_PATH=$root/usr/lib/$triple)
set(CMAKE_FIND_ROOT_PATH $root)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(ENV{PKG_CONFIG_LIBDIR} $root/usr/lib/$triple/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} $root)
END
say "building"
cmake -S . -B "$folder/build" -G Ninja --toolchain "$folder/toolchain.cmake" -DCMAKE_BUILD_TYPE=Release \
  -DLENSLET_CUDA=OFF -DLENSLET_TOOLS=OFF -DLENSLET_INSTALL=OFF
layers=(base ops graph exec models)
targets=()
for layer in "${layers[@]}"; do targets+=("tests/$layer/all"); done
cmake --build "$folder/build" --target "${targets[@]}"
say "running under $(qemu-aarch64 --version | head -n 1)"
# Children of fork() start no threads under qemu-user 7.2 (children without threads pass); untested on real ARM.
for layer in "${layers[@]}"; do
  ctest --test-dir "$folder/build/tests/$layer" -j "$(nproc)" --output-on-failure --timeout 900 -E exec/embedder/fork "$@" --no-tests=ignore
done
