import type { FeedChange, FeedEvent, FeedTxn } from '../../changes/rules/changes-api.js'
import { LONG_ANSWER_BYTES } from '../../limits.js'
import type { Timestamp } from '../../timestamp.js'
import { eventText, lineText } from './event-text.js'
import { snapshotId } from './feed-query.js'
import { bytesToJson, pairToJson } from './wire.js'

/** A transaction as JSON, without its opening brace. Long ones are bytes: streams share them. */
export type TxnJson = string | readonly Buffer[]

/** Texts are joined into pieces of about this length. */
const PIECE_LENGTH = 64 * 1024

function wireChange({ key, op, value, old, expireTs, end }: FeedChange) {
  return { key, op, value, old, expireTs, end }
}

export function wireTxn({ commitTs, startTs, part, isLast, changes }: FeedTxn) {
  return { commitTs, startTs, part, isLast, changes: changes.map(wireChange) }
}

export function* txnJson(txn: FeedTxn): Generator<void, TxnJson, void> {
  const { commitTs, startTs, part, isLast, changes } = txn
  let text = `"commit_ts":${commitTs},"start_ts":${startTs},`
  if (part !== undefined) text += `"part":${part},`
  if (isLast !== undefined) text += `"is_last":${isLast},`
  text += '"changes":['
  const pieces: Buffer[] = []
  for (let i = 0; i < changes.length; i++) {
    text += `${i === 0 ? '' : ','}${changeJson(changes[i] as FeedChange)}`
    if (text.length < PIECE_LENGTH) continue
    pieces.push(Buffer.from(text))
    text = ''
    yield
  }
  text += ']}'
  if (pieces.length === 0 && text.length < LONG_ANSWER_BYTES) return text
  pieces.push(Buffer.from(text))
  return pieces
}

function changeJson({ key, op, value, old, expireTs, end }: FeedChange): string {
  let json = `{"key":${bytesToJson(key)},"op":"${op}"`
  if (end !== undefined) json += `,"end":${bytesToJson(end)}`
  if (value !== undefined) json += `,"value":${bytesToJson(value)}`
  if (old === null) json += ',"old":null'
  else if (old !== undefined) {
    const expiring = old.expireTs === undefined ? '' : `,"expire_ts":${old.expireTs}`
    json += `,"old":{"value":${bytesToJson(old.value)},"commit_ts":${old.commitTs}${expiring}}`
  }
  if (expireTs !== undefined) json += `,"expire_ts":${expireTs}`
  return `${json}}`
}

export function txnFrame(
  format: 'events' | 'ndjson',
  id: Timestamp | undefined,
): readonly [head: string, tail: string] {
  if (format === 'ndjson') return ['{"type":"txn",', '\n']
  return ['event: txn\ndata: {', id === undefined ? '\n\n' : `\nid: ${id}\n\n`]
}

export function eventOf(format: 'events' | 'ndjson', event: Exclude<FeedEvent, { readonly type: 'txn' }>): string {
  const [data, id] = dataOf(event)
  return format === 'events' ? eventText(event.type, data, id) : lineText(event.type, data)
}

/** The data of an event, and its id: the position up to which everything is delivered. */
function dataOf(
  event: Exclude<FeedEvent, { readonly type: 'txn' }>,
): readonly [data: string, id: string | Timestamp | undefined] {
  switch (event.type) {
    case 'resolved':
      return [`{"resolved_ts":${event.resolvedTs}}`, event.isBeforeBegin ? undefined : event.resolvedTs]
    case 'pair':
      return [pairToJson(event), snapshotId(event.ts, event.key)]
    case 'snapshot_end':
      return [`{"ts":${event.ts}}`, event.ts]
  }
}
