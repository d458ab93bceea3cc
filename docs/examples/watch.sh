#!/bin/sh
# Configuration and changes that arrive by themselves: a key that is watched, and a feed that is read on from where it stopped, by
# curl alone. It writes a few small keys below watch/, new ones in each run.
#
#   sh docs/examples/watch.sh [URL]      URL, or PERKV_SERVER: where PerKV serves, default http://127.0.0.1:7400
#
# Exit code 0 when everything that changed was seen, 1 when anything is off.
set -eu

URL=${1:-${PERKV_SERVER:-http://127.0.0.1:7400}}
URL=${URL%/}
RUN=$(date +%s)-$$
KEY=watch/$RUN/config
ITEMS=watch/$RUN/item/
DIR=

fail() {
  printf 'watch.sh: %s\n' "$*" >&2
  exit 1
}

# clean: no curl goes on, and no file stays, however the script ends.
clean() {
  [ -z "$DIR" ] || rm -rf "$DIR"
  [ -z "${STREAM:-}" ] || kill "$STREAM" 2>/dev/null || true
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

command -v curl >/dev/null 2>&1 || fail 'curl is missing; install it and run this again'
DIR=$(mktemp -d)
: >"$DIR/stream" # It is looked into before curl has begun to write.

# --- Requests ---------------------------------------------------------------------------------------------------------

# request METHOD PATH [BODY] [HEADER]: leaves the answer in STATUS, BODY and ETAG.
request() {
  answer=$(curl -sS --connect-timeout 5 --max-time 30 -D "$DIR/head" -w '\n%{http_code}' -X "$1" \
    ${4:+-H "$4"} ${3:+-d "$3"} "$URL$2" 2>&1) ||
    fail "no PerKV server answers at $URL ($(printf '%s\n' "$answer" | grep -m 1 '^curl:'))"
  STATUS=$(printf '%s\n' "$answer" | tail -n 1)
  BODY=$(printf '%s\n' "$answer" | sed '$d')
  ETAG=$(tr -d '\r' <"$DIR/head" | sed -n 's/^[Ee][Tt][Aa][Gg]: //p')
}

# expect STATUS METHOD PATH [BODY] [HEADER]: a request that must be answered with this status.
expect() {
  wanted=$1
  shift
  request "$@"
  [ "$STATUS" = "$wanted" ] || fail "$1 $2 answered $STATUS, not $wanted: $BODY"
}

# field NAME: a number of the last answer. Enough for these answers; programs parse JSON.
field() { printf '%s\n' "$BODY" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }

# items: the values of the changes of the last answer.
items() { printf '%s\n' "$BODY" | grep -o '"value":"[^"]*"' | sed 's/"value":"\(.*\)"/\1/' | tr '\n' ' '; }

# check WHAT GOT WANTED
check() { [ "$2" = "$3" ] || fail "WRONG: $1 is $2, not $3"; }

# later METHOD PATH [BODY]: the same from somebody else, while this script waits.
later() { (sleep 1; curl -sS -o /dev/null --max-time 10 -X "$1" ${3:+-d "$3"} "$URL$2") & }

# seen TEXT: waits until the stream has shown it.
seen() {
  tries=0
  until grep -qF "$1" "$DIR/stream"; do
    tries=$((tries + 1))
    [ "$tries" -le 100 ] || fail "WRONG: the stream does not show $1"
    sleep 0.1
  done
  printf '  the stream shows: %s\n' "$1"
}

# --- The stories ------------------------------------------------------------------------------------------------------

echo '== A reader waits for a key that is not there yet'
later PUT "/v1/kv/$KEY" 'colour=red'
expect 200 GET "/v1/kv/$KEY?wait_ms=20000"
check 'the value' "$BODY" 'colour=red'
printf '  it got: %s\n' "$BODY"

echo '== It waits for another version than the one that it has'
later PUT "/v1/kv/$KEY" 'colour=blue'
expect 200 GET "/v1/kv/$KEY?wait_ms=20000" '' "If-None-Match: $ETAG"
check 'the value' "$BODY" 'colour=blue'
printf '  it got: %s\n' "$BODY"
expect 304 GET "/v1/kv/$KEY?wait_ms=100" '' "If-None-Match: $ETAG"
echo '  nothing else came within 100 ms: 304'

echo '== A stream shows the present value, and each one that follows'
curl -sSN -H 'Accept: text/event-stream' "$URL/v1/kv/$KEY" >"$DIR/stream" &
STREAM=$!
seen '"value":"colour=blue"'
expect 200 PUT "/v1/kv/$KEY" 'colour=green'
seen '"value":"colour=green"'
expect 200 DELETE "/v1/kv/$KEY"
seen 'event: absent'
kill "$STREAM"
wait "$STREAM" 2>/dev/null || true
STREAM=

echo '== A feed is read page by page, and misses nothing in between'
expect 200 GET "/v1/changes?prefix=$ITEMS"
next=$(field next_ts)
for item in one two three; do expect 200 PUT "/v1/kv/$ITEMS$item" "$item"; done
expect 200 GET "/v1/changes?prefix=$ITEMS&since_ts=$next&limit=2"
check 'the first page' "$(items)" 'one two '
next=$(field next_ts)
expect 200 GET "/v1/changes?prefix=$ITEMS&since_ts=$next"
check 'the second page' "$(items)" 'three '
next=$(field next_ts)
later PUT "/v1/kv/${ITEMS}four" four
expect 200 GET "/v1/changes?prefix=$ITEMS&since_ts=$next&wait_ms=20000"
check 'the page that waited' "$(items)" 'four '
echo '  one two, then three, then four as soon as it was written'
wait
echo 'Everything was seen.'
