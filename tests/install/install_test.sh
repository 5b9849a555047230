#!/usr/bin/env bash
# install_test.sh PART SOURCE BUILD: one part of the install tests; `prefix` comes first, the others use what it left.
set -euo pipefail
part=$1 source=$2 build=$3
work=$build/tests/install/work
prefix=$work/stage/opt/lenslet # installed as /opt/lenslet with DESTDIR=stage, so nothing may depend on it
lib=$prefix/lib
fail() { echo "install_test $part: $*" >&2; exit 1; }

# expect_top1 LABEL COMMAND...: the command must print LABEL first, with nearly all probability.
expect_top1() {
  local label=$1 output
  shift
  output=$("$@") || fail "failed: $*"
  echo "$output"
  [[ $(head -n 1 <<<"$output") =~ ^\ *(9[5-9]|100)\.[0-9]%\ +$label$ ]] || fail "expected '$label' first"
}

# configure_and_build APP FOLDER OPTIONS...: builds an app against the installed package.
configure_and_build() {
  local app=$1 folder=$work/$2
  shift 2
  rm -rf "$folder"
  cmake -G Ninja -S "$app" -B "$folder" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release "$@"
  cmake --build "$folder"
}

run_embed() {
  expect_top1 red "$1" "$work/rgb.onnx" "$work/red.ppm" "$work/rgb.txt"
  expect_top1 blue "$1" "$work/rgb.onnx" "$work/blue.ppm" "$work/rgb.txt"
  if "$1" "$work/rgb.txt" "$work/red.ppm" 2>"$work/$part.error.txt"; then fail "a text file was accepted as a model"; fi
  grep -q "rgb.txt" "$work/$part.error.txt" || fail "the error does not name the file: $(cat "$work/$part.error.txt")"
}

# build_sample NAME: builds a sample that reads and writes pictures.
build_sample() {
  configure_and_build "$source/samples/$1" "$1"
  if "$work/$1/$1" "$work/rgb.onnx" "$work/rgb.txt" "$work/$1.png" 2>"$work/$part.error.txt"; then fail "text is no photo"; fi
  grep -q "rgb.txt" "$work/$part.error.txt" || fail "the error does not name the file: $(cat "$work/$part.error.txt")"
}

# The acceptance data, in the repository or beside it.
shared_data() {
  for shared in "$source/shared/data" "$source/../shared/data"; do [ ! -d "$shared" ] || return 0; done
  echo "skipped: no shared data"
  exit 0
}

case $part in
  prefix)
    rm -rf "$work"
    mkdir -p "$work"
    DESTDIR=$work/stage cmake --install "$build" --prefix /opt/lenslet
    if [ ! -d "$lib/cmake/lenslet" ]; then # Debian's lib/x86_64-linux-gnu when configured for /usr
      deep=$(dirname "$(find "$prefix/lib" -name liblenslet.a)")
      [ -d "$deep/cmake/lenslet" ] || fail "no package files under $prefix/lib"
      fail "libraries are under $deep: configure with CMAKE_INSTALL_LIBDIR=lib"
    fi
    for file in include/lenslet/model.h include/lenslet/lenslet.h include/lenslet/export.h include/lenslet/version.h lib/liblenslet.a \
      lib/liblenslet.so lib/cmake/lenslet/lensletConfig.cmake lib/pkgconfig/lenslet.pc share/doc/lenslet/LICENSE; do
      [ -e "$prefix/$file" ] || fail "$file was not installed"
    done
    # The public headers name no third-party type and include no private header.
    if grep -rnE '#include *[<"](google|protozero|cuda|fmt|hwy|nlohmann|CLI|runtime/|ops/|models/)' \
      "$prefix/include"; then fail "a public header includes what is not installed"; fi
    if grep -rlF "$source" "$prefix/lib/cmake" "$prefix/lib/pkgconfig"; then
      fail "package files point into the source tree"
    fi
    python3 "$source/tests/install/tiny_model.py" "$work"
    # The installed command finds the cards of known models.
    cp "$work/rgb.onnx" "$work/resnet18.onnx"
    output=$(LENSLET_DEVICE=cpu "$prefix/bin/lenslet" classify --model "$work/resnet18.onnx" --json "$work/red.ppm")
    [[ $output == *"$prefix/share/lenslet/cards/imagenet-224.card.json"* ]] || fail "no known card is found"
    ;;
  exports)
    # Defined dynamic symbols: only ours.
    others=$(nm -D --defined-only "$lib/liblenslet.so" | awk '{print $3}' |
      grep -vE '^(lenslet_|_Z(N|NK|TI|TS|TV|NKR)?[0-9]*N?K?7lenslet)' || true)
    [ -z "$others" ] || fail "liblenslet.so exports symbols that are not ours: $(head -n 5 <<<"$others")"
    count=$(nm -D --defined-only "$lib/liblenslet.so" | grep -c lenslet)
    [ "$count" -ge 20 ] || fail "liblenslet.so exports only $count symbols of lenslet"
    if nm -DC "$lib/liblenslet.so" | grep 'google::protobuf'; then fail "protobuf symbols in liblenslet.so"; fi
    if nm -C "$lib/liblenslet.a" | grep 'google::protobuf'; then fail "protobuf symbols in liblenslet.a"; fi
    if readelf -d "$lib/liblenslet.so" | grep -E 'NEEDED.*(protobuf|cuda|nvrtc)'; then
      fail "liblenslet.so needs a library it must not need"
    fi
    echo "$count symbols exported"
    ;;
  embed_shared)
    configure_and_build "$source/samples/embed" embed_shared
    readelf -d "$work/embed_shared/embed" | grep -q 'NEEDED.*liblenslet\.so' || fail "embed is not linked to the .so"
    run_embed "$work/embed_shared/embed"
    ;;
  embed_static)
    configure_and_build "$source/samples/embed" embed_static -DEMBED_STATIC=ON
    ! readelf -d "$work/embed_static/embed" | grep -q 'NEEDED.*liblenslet' || fail "embed needs liblenslet.so"
    run_embed "$work/embed_static/embed"
    ;;
  embed_pkg_config)
    export PKG_CONFIG_LIBDIR=$lib/pkgconfig # only: the shared library needs no other package's development files
    stb=$(dirname "$(find /usr/include /usr/local/include -name stb_image.h | head -n 1)")
    mkdir -p "$work/pkg_config"
    # shellcheck disable=SC2046  # the flags are words
    "$CXX" -std=c++20 -O2 "$source/samples/embed/main.cpp" -isystem "$stb" $(pkg-config --cflags --libs lenslet) \
      -Wl,-rpath,"$(pkg-config --variable=libdir lenslet)" -o "$work/pkg_config/embed"
    run_embed "$work/pkg_config/embed"
    # shellcheck disable=SC2046
    "$CXX" -std=c++20 -O2 "$source/samples/embed/main.cpp" -isystem "$stb" $(pkg-config --cflags lenslet) \
      "$lib/liblenslet.a" $(pkg-config --static --libs lenslet | sed 's/-llenslet//') -o "$work/pkg_config/embed_static"
    run_embed "$work/pkg_config/embed_static"
    ;;
  c)
    configure_and_build "$source/samples/c" c
    run_embed "$work/c/classify"
    # Without CMake: only a C compiler, pkg-config and the header.
    export PKG_CONFIG_LIBDIR=$lib/pkgconfig
    stb=$(dirname "$(find /usr/include /usr/local/include -name stb_image.h | head -n 1)")
    # shellcheck disable=SC2046  # the flags are words
    "$CXX" -x c -std=c99 -pedantic -Wall -Werror "$source/samples/c/main.c" -x none -isystem "$stb" \
      $(pkg-config --cflags --libs lenslet) -lm -Wl,-rpath,"$lib" -o "$work/c/classify_pkg_config"
    run_embed "$work/c/classify_pkg_config"
    ;;
  per_layer)
    configure_and_build "$source/samples/per_layer" per_layer
    output=$("$work/per_layer/per_layer" "$work/rgb.onnx")
    echo "$output"
    grep -q '^layer .*rms$' <<<"$output" || fail "no heading"
    grep -qE ' Gemm .*\[1,3\]' <<<"$output" || fail "no line for the Gemm with its [1,3] output"
    ;;
  layer_test)
    # run_layer_test PROGRAM: three cases, which fail without such a model.
    run_layer_test() {
      LAYER_TEST_MODEL=$work/rgb.onnx "$1" | tee "$work/$part.txt"
      grep -q 'test cases: *3 | *3 passed' "$work/$part.txt" || fail "not all cases of $1 passed"
      grep -qE 'by im2col on cpu, .*\): error .* allowed: ok \(.* ms\)' "$work/$part.txt" || fail "no row of a kernel"
      if LAYER_TEST_MODEL=$work/rgb.txt "$1" >"$work/$part.error.txt"; then fail "a text file was accepted as a model"; fi
      grep -q "rgb.txt" "$work/$part.error.txt" || fail "the error does not name the file"
    }
    configure_and_build "$source/samples/layer_test" layer_test
    readelf -d "$work/layer_test/layer_test" | grep -q 'NEEDED.*liblenslet\.so' || fail "it is not linked to the .so"
    run_layer_test "$work/layer_test/layer_test"
    configure_and_build "$source/samples/layer_test" layer_test_static -DLAYER_TEST_STATIC=ON
    ! readelf -d "$work/layer_test_static/layer_test" | grep -q 'NEEDED.*liblenslet' || fail "it needs liblenslet.so"
    run_layer_test "$work/layer_test_static/layer_test"
    # The header and the archive belong to lenslet only.
    export PKG_CONFIG_LIBDIR=$lib/pkgconfig
    # shellcheck disable=SC2046  # the flags are words
    echo '#include <lenslet/check.h>
      int main() { return lenslet::check_layer("Relu", {}, {lenslet::random_tensor(lenslet::DType::f32, {3})},
        {.device = "cpu"}).at(0).passed() ? 0 : 1; }' |
      "$CXX" -std=c++20 -Wall -Wextra -Werror -x c++ - -x none $(pkg-config --cflags --libs lenslet_check) \
        -Wl,-rpath,"$lib" -o "$work/layer_test/one_layer"
    "$work/layer_test/one_layer"
    if grep -nE '#include *<[^>]*/' "$prefix/include/lenslet/check.h"; then fail "the header is not lenslet's alone"; fi
    if nm -C "$lib/liblenslet_check.a" | grep -E ' U (fmt|nlohmann|doctest)::'; then fail "the archive needs more than lenslet"; fi
    ;;
  photos)
    # run_photos PROGRAM: by a known card, which is found from liblenslet.so or in XDG_DATA_DIRS.
    run_photos() {
      diff - <("$1" "$work/resnet18.onnx" "$work/rgb.txt" "$work/red.ppm" "$work/rgb.txt" "$work/blue.ppm") <<END || fail "$1"
card $prefix/share/lenslet/cards/imagenet-224.card.json
$work/red.ppm: red
$work/rgb.txt: $work/rgb.txt: this is no JPEG, PNG, BMP, PNM or WebP file
$work/blue.ppm: blue
END
      if "$1" "$work/rgb.txt" "$work/rgb.txt" "$work/red.ppm" 2>"$work/$part.error.txt"; then fail "a text file is no model"; fi
      grep -q "rgb.txt" "$work/$part.error.txt" || fail "the error does not name the file"
    }
    for app in in_cpp in_c; do
      [ -e "$work/photos/$app" ] || configure_and_build "$source/tests/install/photos_app" photos
      readelf -d "$work/photos/$app" | grep -q 'NEEDED.*liblenslet\.so' || fail "$app is not linked to the .so"
      run_photos "$work/photos/$app"
      [ -e "$work/photos_static/$app" ] || configure_and_build "$source/tests/install/photos_app" photos_static -DAPP_STATIC=ON
      ! readelf -d "$work/photos_static/$app" | grep -q 'NEEDED.*liblenslet' || fail "$app needs liblenslet.so"
      XDG_DATA_DIRS=/nowhere:$prefix/share run_photos "$work/photos_static/$app"
    done
    # shellcheck disable=SC2046  # the flags are words
    "$CXX" -std=c++20 -Wall -Werror "$source/tests/install/photos_app/main.cpp" -Wl,-rpath,"$lib" -o "$work/photos/pkg_config" \
      $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs lenslet_photos)
    run_photos "$work/photos/pkg_config"
    if nm -C "$lib/liblenslet_photos.a" | grep -E ' U nlohmann::'; then fail "the archive needs JSON"; fi
    ;;
  detect)
    build_sample detect
    shared_data
    photo=$shared/images/prepared-320x240/grace_hopper.jpg.ppm
    "$work/detect/detect" "$shared/models/ultraface-rfb-320.onnx" "$photo" "$work/detect.png" | tee "$work/detect.txt"
    python3 "$source/tests/install/judge_picture.py" faces "$work/detect.txt" "$work/detect.png" \
      "$shared/expected/ultraface-rfb-320.json"
    ;;
  upscale)
    build_sample upscale
    shared_data
    photo=$shared/images/odd/cat.ppm
    "$work/upscale/upscale" "$shared/models/super-resolution-x3.onnx" "$photo" "$work/upscale.png"
    python3 "$source/tests/install/judge_picture.py" larger "$work/upscale.png" "$photo"
    ;;
  segment)
    build_sample segment
    "$work/segment/segment" "$work/segment.onnx" "$work/halves.ppm" "$work/segment.png" | tee "$work/segment.txt"
    diff "$work/segment.txt" - <<<$'class   0   75.0%\nclass   2   25.0%' || fail "wrong shares"
    python3 "$source/tests/install/judge_picture.py" halves "$work/segment.png"
    ;;
  lidar)
    build_sample lidar
    output=$("$work/lidar/lidar" "$work/voxels.onnx" "$work/points.bin" "$work/lidar.png")
    [ "$output" = "4 points, 2 of 12 cells occupied" ] || fail "wrong answer: $output"
    python3 "$source/tests/install/judge_picture.py" above "$work/lidar.png"
    ;;
  other_protobuf_shared | other_protobuf_static)
    static=OFF
    [ "$part" = other_protobuf_shared ] || static=ON
    configure_and_build "$source/tests/install/protobuf_app" "$part" -DAPP_STATIC=$static
    "$work/$part/app" "$work/rgb.onnx" | tee "$work/$part.txt"
    grep -qx "a note of 3 lines; model rgb.onnx with 1 input" "$work/$part.txt" || fail "wrong answer"
    ;;
  packages)
    # No file is in two packages. Unpacked together, the command runs, and an app compiles and runs.
    command -v dpkg-shlibdeps >/dev/null || { echo "skipped: no dpkg-dev to make Debian packages with"; exit 0; }
    cd "$work"
    cpack --config "$build/CPackConfig.cmake" -B packages
    root=$work/root
    rm -rf "$root"
    for package in liblenslet0.1 liblenslet-dev lenslet; do
      file=$(ls packages/${package}_*.deb) || fail "no package $package"
      dpkg-deb -c "$file" | awk '$1 !~ /^d/ {print $6}' >"$package.txt"
      dpkg-deb -x "$file" "$root"
    done
    [ -z "$(cat -- *lenslet*.txt | sort | uniq -d)" ] || fail "a file is in two packages"
    cards=$(cd "$source/models" && find cards -type f -printf './usr/share/lenslet/%p\n' | LC_ALL=C sort)
    diff - <(LC_ALL=C sort lenslet.txt) <<END || fail "the command's package has other files"
./usr/bin/lenslet
./usr/share/bash-completion/completions/lenslet
./usr/share/fish/vendor_completions.d/lenslet.fish
$cards
./usr/share/man/man1/lenslet.1
./usr/share/zsh/site-functions/_lenslet
./usr/share/zsh/vendor-completions/_lenslet
END
    "$root/usr/bin/lenslet" generate bash | cmp - "$root/usr/share/bash-completion/completions/lenslet"
    if grep -E '/include/|/cmake/|[.](a|pc|so)$' liblenslet0.1.txt; then fail "development files in the library's package"; fi
    grep -q '/share/doc/lenslet/LICENSE$' liblenslet0.1.txt || fail "the library's package has no licence"
    dpkg-deb -f packages/liblenslet-dev_*.deb Depends | grep -q 'liblenslet0.1 (= ' || fail "-dev without its library"
    dpkg-deb -f packages/liblenslet0.1_*.deb Depends | grep -q libfmt || fail "dependencies were not looked for"
    dpkg-deb -f packages/lenslet_*.deb Maintainer | grep -qE '^[^<]+ <[^<@]+@[^@>]+>$' || fail "no maintainer"
    ! dpkg-deb -f packages/lenslet_*.deb Maintainer | grep -q 'invalid' || fail "a maintainer who cannot be reached"
    for archive in check photos; do
      grep -q "/liblenslet_$archive.a$" liblenslet-dev.txt || fail "-dev without lenslet::$archive"
    done
    "$root/usr/bin/lenslet" devices
    prefix=$root/usr configure_and_build "$source/samples/per_layer" packages_app
    "$work/packages_app/per_layer" "$work/rgb.onnx" | grep -q '^layer .*rms$' || fail "the app does not run"
    ;;
  *) fail "no such part" ;;
esac
