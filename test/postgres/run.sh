#!/usr/bin/env bash
# The tests of the store on PostgreSQL, on one that they start in a temporary directory. Where there is none, nothing is tested.
set -euo pipefail
cd "$(dirname "$0")/../.."

node --input-type=module -e "import { programs } from './test/postgres/server.mjs'; process.exit(programs() ? 0 : 3)" || {
  failure=$?
  [ $failure = 3 ] || exit $failure
  echo 'warning: PostgreSQL is not there (on Debian: apt-get install postgresql), so its tests are SKIPPED' >&2
  exit 0
}
if [ "${1-}" = --http ]; then
  shift
  exec node test/bigtable/http-suite.mjs --postgres "$@"
fi
[ -n "${PERKV_TEST_BUILT-}" ] || npm run --silent build # Some tests start whole servers.
exec npx vitest run --config test/postgres/vitest.config.ts "$@"
