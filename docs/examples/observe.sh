#!/bin/sh
# A worker in shell: it counts the words of documents as they change, each change exactly once, although workers die, runs
# fail and documents change meanwhile. Needs curl. It writes a few small keys below observe/, new ones in each run.
#
#   sh docs/examples/observe.sh [URL]      URL, or PERKV_SERVER: where PerKV serves, default http://127.0.0.1:7400
#
# Exit code 0 when every count comes out right, 1 when anything is off.
set -eu

URL=${1:-${PERKV_SERVER:-http://127.0.0.1:7400}}
URL=${URL%/}
RUN=$(date +%s)-$$
DOCS=observe/$RUN/doc
COUNTS=observe/$RUN/count
OBSERVER=words-$RUN

fail() {
  printf 'observe.sh: %s\n' "$*" >&2
  exit 1
}

command -v curl >/dev/null 2>&1 || fail 'curl is missing; install it and run this again'

# --- Requests ---------------------------------------------------------------------------------------------------------

# request METHOD PATH [BODY]: leaves the answer in STATUS and BODY.
request() {
  answer=$(curl -sS --connect-timeout 5 --max-time 30 -w '\n%{http_code}' -X "$1" -H 'Content-Type: application/json' \
    ${3+-d "$3"} "$URL$2" 2>&1) ||
    fail "no PerKV server answers at $URL ($(printf '%s\n' "$answer" | grep -m 1 '^curl:'))"
  STATUS=$(printf '%s\n' "$answer" | tail -n 1)
  BODY=$(printf '%s\n' "$answer" | sed '$d')
}

# expect STATUS METHOD PATH [BODY]: a request that must be answered with this status.
expect() {
  wanted=$1
  shift
  request "$@"
  [ "$STATUS" = "$wanted" ] || fail "$1 $2 answered $STATUS, not $wanted: $BODY"
}

# field NAME: a number, or a text without quotes in it, of the last answer. Enough for these answers; programs parse JSON.
field() { printf '%s\n' "$BODY" | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }

# check WHAT GOT WANTED
check() { [ "$2" = "$3" ] || fail "WRONG: $1 is $2, not $3"; }

# write NAME TEXT: a document.
write() {
  expect 200 PUT "/v1/kv/$DOCS/$1" "$2"
  printf '  wrote %s: %s\n' "$1" "$2"
}

# count_of NAME: what the workers have counted.
count_of() {
  request GET "/v1/kv/$COUNTS/$1"
  [ "$STATUS" = 200 ] && printf '%s' "$BODY" || printf 'none'
}

# --- The worker -------------------------------------------------------------------------------------------------------

# claim [LEASE_MS]: takes one changed document and its text, or waits for one. Leaves KEY, FENCE, ATTEMPT and TEXT. False
# when there is none.
claim() {
  ask="{\"worker\": \"sh-$$\", \"wait_ms\": ${WAIT_MS:-0}, \"lease_ms\": ${1:-10000}, \"values\": true}"
  expect 200 POST "/v1/observers/$OBSERVER/claim" "$ask"
  KEY=$(field key)
  FENCE=$(field fence)
  ATTEMPT=$(field attempt)
  TEXT=$(field value)
  [ -n "$KEY" ]
}

# finish: stores the count and acknowledges the change, both or neither. Leaves the answer in STATUS and BODY.
finish() {
  words=$(printf '%s' "$TEXT" | wc -w | tr -d ' ')
  request POST /v1/txn "{
    \"acks\": [{\"observer\": \"$OBSERVER\", \"key\": \"$KEY\", \"fence\": $FENCE}],
    \"ops\": [{\"op\": \"put\", \"key\": \"$COUNTS/${KEY##*/}\", \"value\": \"$words\"},
             {\"op\": \"increment\", \"key\": \"$COUNTS/runs\"}]}"
}

# work: runs until nothing is left.
work() {
  while claim; do
    finish
    [ "$STATUS" = 200 ] || fail "the run of $KEY answered $STATUS: $BODY"
    printf '  ran %s: %s words\n' "${KEY##*/}" "$words"
  done
}

# --- The stories ------------------------------------------------------------------------------------------------------

echo '== Documents change, and each change is run'
expect 201 PUT "/v1/observers/$OBSERVER" "{\"prefix\": \"$DOCS/\", \"max_attempts\": 3, \"backoff_ms\": 1}"
write a 'to be or not to be'
write b 'that is the question'
work
check 'the count of a' "$(count_of a)" 6
check 'the count of b' "$(count_of b)" 4

echo '== Changes that come faster than the worker are run together'
for text in one 'one two' 'one two three'; do write a "$text"; done
work
check 'the count of a' "$(count_of a)" 3
check 'the number of runs' "$(count_of runs)" 3

echo '== A worker is too slow: its lease runs out, and another one does the work'
write b 'whether it is nobler'
claim 100 || fail 'there is nothing to claim'
slow=$FENCE
WAIT_MS=10000 claim || fail 'the lease did not run out'
check 'the attempt' "$ATTEMPT" 2
finish
check 'the answer to the second worker' "$STATUS" 200
FENCE=$slow
finish
check 'the answer to the first worker' "$STATUS $(field code) $(field reason)" '409 write_conflict acknowledged'
echo '  the second worker committed, and the first one was refused: its change is acknowledged already'
check 'the count of b' "$(count_of b)" 4
check 'the number of runs' "$(count_of runs)" 4

echo '== A document that no run can bear is parked after its third attempt'
write c 'a poisonous document'
for attempt in 1 2 3; do
  WAIT_MS=10000 claim || fail 'the document was not handed out again'
  check 'the attempt' "$ATTEMPT" "$attempt"
  claims="{\"claims\": [{\"key\": \"$KEY\", \"fence\": $FENCE, \"error\": \"attempt $attempt failed\"}]}"
  expect 200 POST "/v1/observers/$OBSERVER/release" "$claims"
done
expect 200 GET "/v1/observers/$OBSERVER/parked"
check 'the error' "$(field error)" 'attempt 3 failed'
printf '  parked: %s\n' "$(field error)"
expect 200 POST "/v1/observers/$OBSERVER/retry" '{}' # The worker has been mended.
work
check 'the count of c' "$(count_of c)" 3

expect 200 GET "/v1/observers/$OBSERVER"
check 'what is left to run' "$(field pending)" 0
check 'the number of runs' "$(count_of runs)" 5
expect 200 DELETE "/v1/observers/$OBSERVER"
echo 'All counts are right.'
