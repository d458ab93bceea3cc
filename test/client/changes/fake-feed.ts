import type { FeedChange, FeedEvent, FeedTxn, StreamRequest } from '../../../src/changes/rules/changes-api.js'
import { KvError } from '../../../src/client/index.js'
import { compareChanges } from '../../../src/percolator/change.js'
import type { Timestamp } from '../../../src/timestamp.js'
import { utf8 } from '../../store/support.js'

export const AWAY = new KvError('overloaded', 'the server is away', {})

export interface FakeTxn {
  readonly commitTs: Timestamp
  readonly startTs: Timestamp
  readonly keys: readonly string[]
}

/** How one connection goes. */
export interface Connection {
  /** Events of each batch; the rest comes in one. */
  readonly batches: readonly number[]
  /** Changes after which a transaction is cut into parts; 0: it is not. */
  readonly cutAfter: number
  /** Events after which the connection ends; undefined: never. */
  readonly endsAfter?: number | undefined
  readonly end?: 'ends' | 'fails' | undefined
}

/** A feed of given transactions, over connections of a given fate. The last one shows everything and stays open. */
export class FakeFeed {
  readonly requests: StreamRequest[] = []
  open = 0
  now: Timestamp
  #connections: Connection[]

  constructor(
    readonly txns: readonly FakeTxn[],
    connections: readonly Connection[] = [],
    readonly snapshot: { readonly ts: Timestamp; readonly keys: readonly string[] } = { ts: 1, keys: [] },
  ) {
    this.#connections = [...connections]
    this.now = txns[0] === undefined ? 1 : txns[0].commitTs - 1
  }

  get resolvedTs(): Timestamp {
    return Math.max(this.now, this.snapshot.ts, ...this.txns.map(({ commitTs }) => commitTs)) + 10
  }

  events(request: StreamRequest, cutAfter: number): FeedEvent[] {
    const { ts } = this.snapshot
    const after = request.snapshotAfter?.key
    const isSnapshot = request.snapshot || after !== undefined
    const pairs = this.snapshot.keys
      .filter((key) => after === undefined || Buffer.compare(utf8(key), after) > 0)
      .map((key): FeedEvent => ({ type: 'pair', ts, key: utf8(key), value: utf8(`${key}@${ts}`), commitTs: ts }))
    const since = isSnapshot ? ts : (request.sinceTs ?? this.now)
    const txns = this.txns
      .filter(({ commitTs }) => commitTs > since)
      .flatMap((txn) => partsOf(feedTxn(txn), cutAfter))
      .map((txn): FeedEvent => ({ type: 'txn', ...txn }))
    const end: FeedEvent[] = isSnapshot ? [...pairs, { type: 'snapshot_end', ts }] : []
    return [...end, ...txns, { type: 'resolved', resolvedTs: this.resolvedTs }]
  }

  async *stream(request: StreamRequest): AsyncGenerator<readonly FeedEvent[], void> {
    this.requests.push(request)
    const connection = this.#connections.shift()
    const { batches = [], cutAfter = 0, endsAfter, end } = connection ?? {}
    let events = this.events(request, cutAfter).slice(0, endsAfter)
    this.open++
    try {
      for (const size of batches) {
        yield events.slice(0, size)
        events = events.slice(size)
      }
      yield events
      if (end === 'fails') throw AWAY
      if (connection !== undefined) return
      await new Promise<void>((resolve) => {
        const signal = request.signal as AbortSignal
        if (signal.aborted) resolve()
        signal.addEventListener('abort', () => resolve(), { once: true })
      })
    } finally {
      this.open--
    }
  }
}

function feedTxn({ commitTs, startTs, keys }: FakeTxn): FeedTxn {
  const changes = keys.map((key): FeedChange => ({ key: utf8(key), op: 'put', value: utf8(`${key}@${commitTs}`) }))
  return { commitTs, startTs, changes }
}

function partsOf(txn: FeedTxn, cutAfter: number): FeedTxn[] {
  if (cutAfter === 0 || txn.changes.length <= cutAfter) return [txn]
  const parts: FeedTxn[] = []
  for (let from = 0; from < txn.changes.length; from += cutAfter) {
    const isLast = from + cutAfter >= txn.changes.length
    parts.push({ ...txn, changes: txn.changes.slice(from, from + cutAfter), part: parts.length, isLast })
  }
  return parts
}

export function inOrder(txns: readonly FakeTxn[]): FakeTxn[] {
  const place = ({ commitTs, startTs }: FakeTxn) => ({ type: 'delete', key: utf8(''), commitTs, startTs }) as const
  return txns.toSorted((a, b) => compareChanges(place(a), place(b)))
}
