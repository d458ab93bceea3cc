#!/usr/bin/env bash
# The tests of the store on Bigtable, against Google's server in memory. They need packages of Debian to build it, and
# Google's client, which is an optional peer of this package: what is missing is installed, or the run fails.
set -euo pipefail
cd "$(dirname "$0")/../.."

CLIENT=@google-cloud/bigtable@6.5.1
GO_PACKAGE=/usr/share/gocode/src/cloud.google.com/go/bigtable/bttest

has_go() { command -v go > /dev/null && [ -d "$GO_PACKAGE" ]; }
if ! has_go && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
  apt() { DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq -o DPkg::Lock::Timeout=60 -o Acquire::Retries=2 "$@" > /dev/null; }
  apt install -y --no-install-recommends golang-go golang-google-cloud-dev ||
    { apt update && apt install -y --no-install-recommends golang-go golang-google-cloud-dev; } || true
fi
has_go || {
  echo "error: the Bigtable emulator can't be built: install Debian's golang-go and golang-google-cloud-dev" >&2
  exit 3
}

# Beside the other packages, which npm would all look up again: a link is enough for Node. npm ci removes both.
node -e "require.resolve('${CLIENT%@*}')" 2> /dev/null || {
  BESIDE=.cache/bigtable-client
  npm install --prefix "node_modules/$BESIDE" --no-audit --no-fund "$CLIENT"
  mkdir -p "node_modules/${CLIENT%/*}"
  ln -sfn "../$BESIDE/node_modules/${CLIENT%@*}" "node_modules/${CLIENT%@*}"
}

if [ "${1-}" = --prepare ]; then exit; fi
if [ "${1-}" = --emulator ]; then
  shift
  GO111MODULE=off GOPATH=/usr/share/gocode exec go run ./test/bigtable/emulator --addr localhost:8086 "$@"
fi

npm run --silent build # Some tests start whole servers, and an older build would be tested without a word.

if [ "${1-}" = --mutants ]; then
  shift
  exec node test/bigtable/mutants.mjs "$@"
fi
if [ "${1-}" = --http ]; then
  shift
  exec node test/bigtable/http-suite.mjs --emulator "$@"
fi
if [ "${1-}" = --bench ]; then
  shift
  exec node bench/main.mjs "${@:-bigtable}"
fi
exec npx vitest run --config test/bigtable/vitest.config.ts "$@"
