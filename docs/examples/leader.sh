#!/bin/sh
# Leader election by curl alone: of several candidates one leads, its work is held to its lease, and a leader that stopped for too long
# changes nothing any more. It writes three small keys below leader/, new ones in each run.
#
#   sh docs/examples/leader.sh [URL]      URL, or PERKV_SERVER: where PerKV serves, default http://127.0.0.1:7400
#
# Exit code 0 when every step was done by the leader of its time, 1 when anything is off.
set -eu

URL=${1:-${PERKV_SERVER:-http://127.0.0.1:7400}}
URL=${URL%/}
RUN=$(date +%s)-$$
LEASE=leader/$RUN
STEPS=leader/$RUN/steps
TTL_MS=${TTL_MS:-1500}
THIRD=0.5 # Seconds. A leader that renews at a third has two more tries before its time is over.
DIR=

fail() {
  printf 'leader.sh: %s\n' "$*" >&2
  exit 1
}

# clean: no curl goes on, and no file stays, however the script ends.
clean() {
  [ -z "$DIR" ] || rm -rf "$DIR"
  [ -z "${WAITING:-}" ] || kill "$WAITING" 2>/dev/null || true
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

command -v curl >/dev/null 2>&1 || fail 'curl is missing; install it and run this again'
DIR=$(mktemp -d)

# --- Requests ---------------------------------------------------------------------------------------------------------

# request METHOD PATH [BODY]: leaves the answer in STATUS and BODY.
request() {
  answer=$(curl -sS --connect-timeout 5 --max-time 60 -w '\n%{http_code}' -X "$1" -H 'Content-Type: application/json' \
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

# --- A candidate ------------------------------------------------------------------------------------------------------

# stand NAME WAIT_MS: asks for the lease, and waits in line for it.
stand() { request PUT "/v1/leases/$LEASE" "{\"holder\": \"$1\", \"ttl_ms\": $TTL_MS, \"wait_ms\": $2}"; }

# renew NAME FENCE: with the fence, so that a leader who lost the lease does not get it anew without noticing.
renew() { request PUT "/v1/leases/$LEASE" "{\"holder\": \"$1\", \"ttl_ms\": $TTL_MS, \"fence\": $2}"; }

# work NAME FENCE: a step of the work, which takes effect only if the lease is held when it commits.
work() {
  request POST /v1/txn "{
    \"checks\": [{\"lease\": \"$LEASE\", \"fence\": $2}],
    \"ops\": [{\"op\": \"increment\", \"key\": \"$STEPS/$1\"}]}"
}

# lead NAME FENCE STEPS: works and renews. False when the lease is lost, and then nothing more may be done.
lead() {
  for _ in $(seq "$3"); do
    work "$1" "$2"
    [ "$STATUS" = 200 ] || return 1
    printf '  %s did a step\n' "$1"
    sleep "$THIRD"
    renew "$1" "$2"
    [ "$STATUS" = 200 ] || return 1
  done
}

# waits_for_it NAME: stands in the background.
waits_for_it() {
  (stand "$1" 30000; printf '%s\n%s\n' "$STATUS" "$BODY" >"$DIR/granted") &
  WAITING=$!
}

# is_granted NAME: waits until the one in the background leads. Leaves its fence in FENCE.
is_granted() {
  wait "$WAITING"
  WAITING=
  BODY=$(sed 1d "$DIR/granted")
  check "the answer to $1" "$(sed -n 1p "$DIR/granted") $(field holder)" "200 $1"
  FENCE=$(field fence)
  renew "$1" "$FENCE" # After a wait of more than a third: the lease counts from the renewal.
  check "the answer to the renewal of $1" "$STATUS" 200
  printf '  %s leads\n' "$1"
}

# --- The stories ------------------------------------------------------------------------------------------------------

echo '== Ann leads, and Ben waits for his turn'
stand ann 0
check 'the answer to Ann' "$STATUS" 200
ann=$(field fence)
stand ben 0
check 'the answer to Ben' "$STATUS $(field code) $(field holder)" '423 lease_held ann'
waits_for_it ben
lead ann "$ann" 4 || fail "WRONG: Ann lost the lease, although she renewed it: $BODY"
expect 200 DELETE "/v1/leases/$LEASE?holder=ann&fence=$ann"
is_granted ben
ben=$FENCE
[ "$ben" -gt "$ann" ] || fail "WRONG: the fence of Ben, $ben, is not above that of Ann, $ann"

echo '== Ben stops for too long: Cleo leads, and nothing that he does late has an effect'
lead ben "$ben" 1 || fail "WRONG: Ben lost the lease, although he renewed it: $BODY"
waits_for_it cleo
is_granted cleo # While Ben does nothing.
cleo=$FENCE
lead cleo "$cleo" 1 || fail "WRONG: Cleo lost the lease, although she renewed it: $BODY"
if lead ben "$ben" 1; then fail 'WRONG: Ben has done a step under a lease that he had lost'; fi
check 'the answer to Ben' "$STATUS $(field code)" '412 precondition_failed'
echo '  ben was refused, and stops'
expect 200 DELETE "/v1/leases/$LEASE?holder=cleo&fence=$cleo"
expect 404 GET "/v1/leases/$LEASE"

for steps in ann:4 ben:1 cleo:1; do
  expect 200 GET "/v1/kv/$STEPS/${steps%:*}"
  check "the number of steps of ${steps%:*}" "$BODY" "${steps#*:}"
done
echo 'Each step was done by the leader of its time.'
