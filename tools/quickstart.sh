#!/usr/bin/env bash
# From a clean clone to classes: installs what is missing, builds into build/quickstart, fetches the default model
# (EfficientNet-Lite0) and sample photos into the cache folder, and classifies the photos. May be run twice.
#
# usage: tools/quickstart.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/scripts/deps.sh
[ $# = 0 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0"; [[ $1 == -h || $1 == --help ]] && exit 0; die "unknown option '$1'"; }

install_missing "${lenslet_build_packages[@]}" "${lenslet_fetch_packages[@]}"

say "building the lenslet command: build/quickstart"
configure build/quickstart -DCMAKE_BUILD_TYPE=Release -DLENSLET_TESTS=OFF
build build/quickstart --target lenslet-cli

say "fetching the default model and the sample photos"
tools/scripts/fetch_default_model.sh || die "the default model could not be fetched"
cache=${LENSLET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lenslet}

say "classifying the sample photos: build/quickstart/tools/lenslet classify $cache/photos"
build/quickstart/tools/lenslet classify "$cache/photos" || die "classifying the sample photos failed"

printf '\nYour own photo: build/quickstart/tools/lenslet classify PHOTO\n'
