import type { FeedPage, FeedTxn } from '../../changes/rules/changes-api.js'
import { runSliced } from '../../event-loop/time-slicer.js'
import { txnJson, wireTxn } from './feed-text.js'
import { listHead, mapHead, toMsgpack } from './wire.js'

/** Fields of a page: `txns`, `resolved_ts`, `next_ts`. */
const FIELDS = 3

type Rest = NonNullable<FeedPage['rest']>
type Ends = Pick<FeedPage, 'resolvedTs' | 'nextTs'>

export async function* jsonPage(txns: readonly FeedTxn[], rest: Rest): AsyncGenerator<Buffer, void> {
  let before = '{"txns":[{'
  const ends = yield* eachOf(txns, rest, async function* (txn) {
    const json = await runSliced(txnJson(txn))
    yield Buffer.from(before)
    if (typeof json === 'string') yield Buffer.from(json)
    else yield* json
    before = ',{'
  })
  yield Buffer.from(`],"resolved_ts":${ends.resolvedTs},"next_ts":${ends.nextTs}}\n`)
}

export async function* msgpackPage(txns: readonly FeedTxn[], rest: Rest, count: number): AsyncGenerator<Buffer, void> {
  let left = count
  yield Buffer.concat([mapHead(FIELDS), toMsgpack('txns'), listHead(count)])
  const ends = yield* eachOf(txns, rest, async function* (txn) {
    left--
    yield toMsgpack(wireTxn(txn))
  })
  if (left !== 0) throw new Error('a transaction was cut into other parts when it was read again')
  yield Buffer.concat(['resolved_ts', ends.resolvedTs, 'next_ts', ends.nextTs].map(toMsgpack))
}

async function* eachOf(
  txns: readonly FeedTxn[],
  rest: Rest,
  encode: (txn: FeedTxn) => AsyncGenerator<Buffer, void>,
): AsyncGenerator<Buffer, Ends> {
  for (const txn of txns) yield* encode(txn)
  for (let next = await rest.next(); ; next = await rest.next()) {
    if (next.done) return next.value
    yield* encode(next.value)
  }
}
