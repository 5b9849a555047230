#!/usr/bin/env bash
# From a clean clone to classes: installs what is missing, builds into build/quickstart, fetches the default model
# (EfficientNet-Lite0) and sample photos into the cache folder, and classifies the photos. May be run twice.
#
# usage: tools/quickstart.sh [--cuda | --cpu]
#   --cuda   builds the CUDA half, which takes most of the time, and fails without nvcc
#   --cpu    leaves it out
#   Without either it is built where there are an NVIDIA GPU and nvcc.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/scripts/deps.sh
usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; }
cuda=
while [ $# -gt 0 ]; do
  case $1 in
    --cuda) cuda=ON ;;
    --cpu) cuda=OFF ;;
    -h | --help) usage; exit 0 ;;
    *) usage; die "unknown option '$1'" ;;
  esac
  shift
done
if [ -z "$cuda" ]; then
  cuda=OFF
  # The toolkit alone proves no GPU; WSL has no device file.
  if compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ $(nvidia-smi -L 2>/dev/null) == GPU\ * ]]; then cuda=AUTO; fi
fi

install_missing "${lenslet_build_packages[@]}" "${lenslet_fetch_packages[@]}"

# Runs in parallel: the fetch waits for the network, the build for the processor.
fetch_log=$(mktemp)
tools/scripts/fetch_default_model.sh >"$fetch_log" 2>&1 &
fetching=$!
trap 'kill "$fetching" 2>/dev/null || true; rm -f "$fetch_log"' EXIT

say "building the lenslet command: build/quickstart (LENSLET_CUDA=$cuda); the default model is fetched meanwhile"
configure build/quickstart -DCMAKE_BUILD_TYPE=Release -DLENSLET_TESTS=OFF -DLENSLET_CUDA=$cuda
build build/quickstart --target lenslet-cli

say "fetching the default model and the sample photos"
fetched=0
wait "$fetching" || fetched=$?
cat "$fetch_log"
[ "$fetched" -eq 0 ] || die "the default model could not be fetched"
cache=${LENSLET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lenslet}

say "classifying the sample photos: build/quickstart/tools/lenslet classify $cache/photos"
build/quickstart/tools/lenslet classify "$cache/photos" || die "classifying the sample photos failed"

printf '\nYour own photo: build/quickstart/tools/lenslet classify PHOTO\n'
