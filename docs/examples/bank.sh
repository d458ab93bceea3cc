#!/usr/bin/env bash
# The bank transfer of Percolator's paper (Peng and Dabek, OSDI 2010, figure 4), one request at a time, and what readers
# do when its coordinator dies halfway. Needs bash, curl and jq. It writes a few keys below bank/, new ones in each run.
#
#   bash docs/examples/bank.sh [URL]      URL, or PERKV_SERVER: where PerKV serves, default http://127.0.0.1:7400
#
# Exit code 0 when every balance comes out right, 1 when anything is off.
set -euo pipefail

URL=${1:-${PERKV_SERVER:-http://127.0.0.1:7400}}
URL=${URL%/}
LOGICAL_PER_MS=2048 # A timestamp is Unix milliseconds times 2^11, plus a counter.

fail() {
  printf 'bank.sh: %s\n' "$*" >&2
  exit 1
}

for tool in curl jq; do
  command -v "$tool" >/dev/null 2>&1 || fail "$tool is missing; install it and run this again"
done

# --- One call of the protocol -----------------------------------------------------------------------------------------

# call NAME BODY: POST /v1/percolator/NAME. Leaves the answer in STATUS and BODY.
call() {
  local answer
  answer=$(curl -sS --connect-timeout 5 --max-time 30 -w '\n%{http_code}' -H 'Content-Type: application/json' \
    -d "$2" "$URL/v1/percolator/$1" 2>&1) ||
    fail "no PerKV server answers at $URL ($(grep -m 1 '^curl:' <<<"$answer"))"
  STATUS=${answer##*$'\n'}
  BODY=${answer%$'\n'*}
}

# expect STATUS NAME BODY: a call that must answer with this status.
expect() {
  call "$2" "$3"
  [ "$STATUS" = "$1" ] || fail "$2 answered $STATUS, not $1: $BODY"
}

# field FILTER: a field of the last answer.
field() { jq -r "$1" <<<"$BODY"; }

# check WHAT GOT WANTED
check() { [ "$2" = "$3" ] || fail "WRONG: $1 is $2, not $3"; }

# --- The story's timestamps: real ones from tso, shown under the paper's small numbers --------------------------------

NAMES='{}'
NEXT_NAME=5

# take_ts: a new timestamp in TS, and its small number in NAME.
take_ts() {
  expect 200 tso '{}'
  TS=$(field .ts)
  NAME=$NEXT_NAME
  NEXT_NAME=$((NEXT_NAME + 1))
  NAMES=$(jq -c --arg ts "$TS" --arg name "$NAME" '. + {($ts): $name}' <<<"$NAMES")
}

# --- Showing the rows -------------------------------------------------------------------------------------------------

# One line for each timestamp at which a row holds something, newest first, as in the paper's figures. A value of up to
# 255 bytes is stored inside the lock, later inside the write record, and not in a place of its own. The table shows it
# at its start timestamp, where the paper has it, and says in brackets where it really is.
# shellcheck disable=SC2016
TABLE='
  def name: tostring as $ts | $names[$ts] // $ts;
  def account: sub("^.*/"; "");
  def pad($width): . + (" " * ($width - length));
  def cells:
    [ (.values[] | {ts: .start_ts, data: .value}),
      (.lock // empty | {ts: .start_ts, inlined: "(in lock)",
        lock: (if .key == .primary then "I am primary" else "primary @ \(.primary | account)" end)}),
      (.writes[] | {ts: .commit_ts, write: (if .type == "rollback" then "rollback" else "data @ \(.start_ts | name)" end)}),
      (.writes[] | select(.short_value != null) | {ts: .start_ts, inlined: "\(.short_value) (in write)"}) ]
    | group_by(.ts) | map(add) | reverse;
  def cell($width; $text): (if $text then "\(.ts | name): \($text)" else "" end) | pad($width);
  def line($head; $data; $lock; $write): "    \($head | pad(5)) | \($data) | \($lock) | \($write)";
  line("row"; "data" | pad(20); "lock" | pad(20); "write"),
  ({"account": "Bob", "row": $bob}, {"account": "Joe", "row": $joe}
   | "    ------+----------------------+----------------------+----------------",
     (.account as $account | .row | cells | to_entries[]
      | (if .key == 0 then $account else "" end) as $head
      | .value | line($head; cell(20; .data // .inlined); cell(20; .lock); cell(0; .write))))
  | sub(" +$"; "")'

show() {
  local bob joe
  expect 200 mvcc_get_by_key "{\"key\": \"$BOB\"}"
  bob=$BODY
  expect 200 mvcc_get_by_key "{\"key\": \"$JOE\"}"
  joe=$BODY
  echo
  jq -rn --argjson names "$NAMES" --argjson bob "$bob" --argjson joe "$joe" "$TABLE"
  echo
}

STEP=0
# step REQUEST EXPLANATION...: the heading of one step.
step() {
  STEP=$((STEP + 1))
  printf '%2d. %s\n' "$STEP" "$1"
  shift
  printf '    %s\n' "$@"
}

# --- The steps that the three stories share ---------------------------------------------------------------------------

# open_accounts STORY: Bob has 10 and Joe 2, in keys that no other run has.
open_accounts() {
  BOB=$RUN/$1/Bob
  JOE=$RUN/$1/Joe
  NAMES='{}'
  NEXT_NAME=5
  STEP=0
  take_ts
  local start=$TS
  expect 200 prewrite "{\"mutations\": [{\"op\": \"put\", \"key\": \"$BOB\", \"value\": \"10\"},
    {\"op\": \"put\", \"key\": \"$JOE\", \"value\": \"2\"}], \"primary\": \"$BOB\", \"start_ts\": $start, \"lock_ttl\": 120000}"
  take_ts
  expect 200 commit "{\"keys\": [\"$BOB\", \"$JOE\"], \"start_ts\": $start, \"commit_ts\": $TS}"
  step 'Initial state' "Bob has 10 and Joe has 2: the write column says at 6 that the data of 5 is committed."
  show
}

# prewrite_transfer TTL_MS: locks both rows for Bob's 7 to Joe. Leaves the start timestamp in START.
prewrite_transfer() {
  local bob joe
  take_ts
  START=$TS
  expect 200 get "{\"key\": \"$BOB\", \"ts\": $START}"
  bob=$(field .value)
  expect 200 get "{\"key\": \"$JOE\", \"ts\": $START}"
  joe=$(field .value)

  expect 200 prewrite "{\"mutations\": [{\"op\": \"put\", \"key\": \"$BOB\", \"value\": \"$((bob - 7))\"}],
    \"primary\": \"$BOB\", \"start_ts\": $START, \"lock_ttl\": $1}"
  step "tso -> 7, get both balances, prewrite Bob = $((bob - 7))   primary Bob, start_ts 7" \
    "Bob's row is locked with his new balance; his lock is the primary, and it alone decides."
  show

  expect 200 prewrite "{\"mutations\": [{\"op\": \"put\", \"key\": \"$JOE\", \"value\": \"$((joe + 7))\"}],
    \"primary\": \"$BOB\", \"start_ts\": $START, \"lock_ttl\": $1}"
  step "prewrite Joe = $((joe + 7))   primary Bob, start_ts 7" \
    "Joe's row is locked too; his lock names Bob's row, so that whoever meets it knows where to ask."
  show
}

# commit_primary: the transfer's point of no return.
commit_primary() {
  take_ts
  COMMIT=$TS
  expect 200 commit "{\"keys\": [\"$BOB\"], \"start_ts\": $START, \"commit_ts\": $COMMIT}"
  step 'tso -> 8, commit Bob   start_ts 7, commit_ts 8' \
    'One atomic write turns the primary lock into a write record: the transfer has happened.'
  show
}

# meet_lock: a reader of Joe runs into the lock. Leaves its timestamp in READ.
meet_lock() {
  take_ts
  READ=$TS
  expect 423 get "{\"key\": \"$JOE\", \"ts\": $READ}"
  check "the code of a read of a locked row" "$(field .code)" key_locked
  check "the primary that Joe's lock names" "$(field .lock.primary)" "$BOB"
  check "the start_ts of Joe's lock" "$(field .lock.start_ts)" "$START"
}

# balance NAME KEY WANTED: what a reader at READ gets.
balance() {
  expect 200 get "{\"key\": \"$2\", \"ts\": $READ}"
  check "$1's balance" "$(field .value)" "$3"
}

# settle BOB JOE: both balances and their total in one snapshot, and no lock left behind.
settle() {
  take_ts
  expect 200 batch_get "{\"keys\": [\"$BOB\", \"$JOE\"], \"ts\": $TS}"
  check "Bob's final balance" "$(field '.pairs[0].value')" "$1"
  check "Joe's final balance" "$(field '.pairs[1].value')" "$2"
  check 'the total' "$(field '[.pairs[].value | tonumber] | add')" 12
  local key
  for key in "$BOB" "$JOE"; do
    expect 200 mvcc_get_by_key "{\"key\": \"$key\"}"
    check "the lock left on $key" "$(field .lock)" null
  done
  printf '    Bob has %s, Joe has %s, together 12, and no lock is left. The timestamps in full:\n' "$1" "$2"
  jq -r 'to_entries | map("\(.value) = \(.key)") | (.[:4], .[4:]) | select(length > 0) | "    " + join("   ")' <<<"$NAMES"
  echo
}

# --- The stories ------------------------------------------------------------------------------------------------------

call tso '{}'
[ "$STATUS" = 200 ] && jq -e '.ts | numbers' >/dev/null 2>&1 <<<"$BODY" ||
  fail "what answers at $URL is not PerKV (status $STATUS to POST /v1/percolator/tso)"
RUN=bank/$(field .ts) # A timestamp is handed out once, so these keys are new.

cat <<END
PerKV at $URL, keys below $RUN/

Each table shows what the server stores for both rows (mvcc_get_by_key), newest first, as figure 4
of the paper does. Small numbers stand for timestamps. A short value has no place of its own: it
stands in the lock, where this call doesn't show it, and once committed in the write record.

END
echo '== 1. The transfer: Bob sends 7 to Joe'
echo
open_accounts 1
prewrite_transfer 120000
commit_primary
expect 200 commit "{\"keys\": [\"$JOE\"], \"start_ts\": $START, \"commit_ts\": $COMMIT}"
step 'commit Joe   start_ts 7, commit_ts 8' "The secondary follows at leisure; a reader who meets its lock first does this instead (story 2)."
show
READ=$START
balance "as of timestamp 7, Bob" "$BOB" 10
balance "as of timestamp 7, Joe" "$JOE" 2
settle 3 9

echo '== 2. The coordinator dies after it committed the primary'
echo
open_accounts 2
prewrite_transfer 120000 # A second after its end the server would do itself what the reader does here.
commit_primary
meet_lock
step 'The coordinator is gone. A reader: tso -> 9, get Joe at 9 -> 423 key_locked' \
  "A transaction that began before 9 holds Joe's row, so nobody can say yet what is true at 9."
show
expect 200 tso '{}'
expect 200 check_txn_status "{\"primary\": \"$BOB\", \"lock_ts\": $START, \"caller_start_ts\": $READ, \"current_ts\": $(field .ts)}"
check "the transfer's status" "$(field .status)" committed
check "the transfer's commit_ts" "$(field .commit_ts)" "$COMMIT"
step 'The reader: check_txn_status of the primary, Bob, lock_ts 7 -> committed, commit_ts 8' \
  "Bob's write record at 8 points to the data of 7, so the transfer was committed; nothing changes."
show
expect 200 resolve_lock "{\"start_ts\": $START, \"commit_ts\": $COMMIT, \"keys\": [\"$JOE\"]}"
check 'the number of locks resolved' "$(field .resolved)" 1
step 'The reader: resolve_lock Joe, start_ts 7, commit_ts 8' \
  'The reader rolls the dead transaction forward: it makes the commit that was still owed.'
show
balance Joe "$JOE" 9
step 'The reader: get Joe at 9 -> 9' 'The read that met the lock now gets its answer.'
echo
settle 3 9

echo '== 3. The coordinator dies before it committed the primary'
echo
TTL_MS=$((3000 + 300 * SECONDS)) # Longer where these calls have taken long.
open_accounts 3
prewrite_transfer "$TTL_MS"
meet_lock
step 'The coordinator is gone. A reader: tso -> 8, get Joe at 8 -> 423 key_locked' \
  "The lock lives for $TTL_MS ms from timestamp 7; until then the coordinator may still be at work."
show
# A lock's age is the physical part of current_ts less that of its start_ts; the server's clock has to be there.
LATER=0
until ((LATER / LOGICAL_PER_MS > START / LOGICAL_PER_MS + TTL_MS)); do
  sleep 0.1
  expect 200 tso '{}'
  LATER=$(field .ts)
done
expect 200 check_txn_status "{\"primary\": \"$BOB\", \"lock_ts\": $START, \"caller_start_ts\": $READ, \"current_ts\": $LATER}"
check "the transfer's status" "$(field .status)" rolled_back
# A second after the end of the TTL the server does all of this by itself. It is first where these calls take long.
[ "$(field .action)" = no_action ] || check 'what check_txn_status did' "$(field .action)" ttl_expire_rollback
step "The reader: check_txn_status of Bob, lock_ts 7, current_ts = tso, $((TTL_MS + 1)) ms later -> rolled_back" \
  "The reader has waited until tso is past the TTL. By then Bob's lock is too old, so it goes, and" \
  'a rollback record at 7 bars the coordinator from ever committing.'
show
expect 200 resolve_lock "{\"start_ts\": $START, \"commit_ts\": 0, \"keys\": [\"$JOE\"]}"
[ "$(field .resolved)" = 0 ] || check 'the number of locks resolved' "$(field .resolved)" 1
step 'The reader: resolve_lock Joe, start_ts 7, commit_ts 0' \
  "Commit timestamp 0 means roll back: Joe's lock goes the way of the primary's."
show
balance Joe "$JOE" 2
step 'The reader: get Joe at 8 -> 2' 'Nothing was transferred.'
echo
take_ts
expect 409 commit "{\"keys\": [\"$BOB\"], \"start_ts\": $START, \"commit_ts\": $TS}"
check 'the code of the late commit' "$(field .code)" txn_lock_not_found
step 'The coordinator was only slow: tso -> 9, commit Bob -> 409 txn_lock_not_found' \
  'It comes too late and learns so: a transaction is committed or rolled back, never both.'
show
settle 10 2

echo 'All balances and totals are right.'
