import { expect } from 'vitest'
import { type ChangedTxn, connect } from '../../src/client/index.js'
import { isKvError } from '../../src/errors/kv-error.js'
import { Refused } from '../anomalies/http-transaction.js'
import { ask, mustBeAway, pause, surely } from './ask.js'
import type { Cluster } from './cluster.js'

/** What the consumer's transactions put, outside of its range. */
export const APPLIED = 'applied/'
export const CONSUMER = 'reader'

interface WireChange {
  readonly key: string
  readonly op: 'put' | 'delete' | 'expire' | 'delete_range'
  readonly value?: string
  readonly end?: string
}
export interface Txn {
  readonly commit_ts: number
  readonly start_ts: number
  readonly changes: readonly WireChange[]
}
export interface Page {
  readonly txns: readonly Txn[]
  readonly resolved_ts: number
  readonly next_ts: number
}
export type Pairs = Map<string, string>

/** Of all readers the same, whatever came over the wire beside it. */
const plain = ({ commit_ts, start_ts, changes }: Txn): Txn => ({
  ...{ commit_ts, start_ts },
  changes: changes.map(({ key, op, value, end }) => ({
    key,
    op,
    ...(value !== undefined && { value }),
    ...(end !== undefined && { end }),
  })),
})

/** What a reader was told, in its order. */
export class Reading {
  readonly txns: Txn[] = []
  /** The pairs of a snapshot, with which it has begun. */
  pairs: Pairs = new Map()
  begin = 0
  resolved = 0

  take(txn: Txn): void {
    expect(txn.commit_ts, 'a change at or below resolved_ts').toBeGreaterThan(this.resolved)
    this.txns.push(plain(txn))
  }

  /** Before another snapshot. */
  forget(): void {
    this.txns.length = 0
    this.pairs.clear()
    this.resolved = 0
  }

  /** @returns the pairs at a timestamp. */
  at(ts: number): Pairs {
    const pairs = new Map(this.pairs)
    for (const { changes } of this.txns.filter(({ commit_ts }) => commit_ts <= ts))
      for (const { op, key, value = '', end = '' } of changes)
        if (op === 'put') pairs.set(key, value)
        else if (op !== 'delete_range') pairs.delete(key)
        else for (const each of [...pairs.keys()]) if (each >= key && each < end) pairs.delete(each)
    return pairs
  }
}

/** A loop of the library, which connects again to the server that was killed or stopped. */
export async function follow(url: string, reading: Reading, from: object, signal: AbortSignal): Promise<void> {
  const db = connect(url, { retryMs: 120_000, connectTimeoutMs: 120_000 })
  const onResolved = (ts: number): void => {
    reading.resolved = ts
  }
  try {
    for await (const txn of db.changes({ ...from, signal, onResolved, heartbeatMs: 500 })) {
      if (!txn.isSnapshot) reading.take(wireOf(txn))
      else {
        reading.begin = txn.commitTs
        for (const change of txn.changes) if (change.op === 'put') reading.pairs.set(change.key, change.value)
      }
    }
  } finally {
    await db.close()
  }
}

/** Begins with a snapshot, and with another one where its changes were collected while its server was killed or stopped. */
export async function copy(url: string, reading: Reading, signal: AbortSignal): Promise<void> {
  for (;;)
    try {
      return await follow(url, reading, { snapshot: true }, signal)
    } catch (error) {
      if (!isKvError(error, 'ts_below_safe_point')) throw error
      reading.forget()
    }
}

function wireOf({ commitTs, startTs, changes }: ChangedTxn): Txn {
  const wire = changes.map((change): WireChange => {
    if (change.op === 'put') return { op: 'put', key: change.key, value: change.value }
    if (change.op !== 'delete_range') return { op: change.op, key: change.key }
    const [key, end] = [change.start, change.end].map((bound) => Buffer.from(bound).toString()) as [string, string]
    return { op: 'delete_range', key, end }
  })
  return { commit_ts: commitTs, start_ts: startTs, changes: wire }
}

/** Page by page, each from any server. */
export async function poll(cluster: Cluster, reading: Reading, since: number, isOver: () => boolean): Promise<void> {
  for (let position = since; !isOver(); ) {
    const query = `since_ts=${position}&limit=30&wait_ms=1000`
    const page = await surely(() => ask<Page>(`${cluster.url}/v1/changes?${query}`))
    for (const txn of page.txns) reading.take(txn)
    expect(page.next_ts).toBeGreaterThanOrEqual(position)
    position = page.next_ts
    reading.resolved = position
  }
}

interface Applied {
  readonly to: number
  readonly txns: readonly Txn[]
}

/** Puts what it reads as a consumer, and moves its position by the same transaction. @returns when nothing up to `end` is left. */
export async function consume(cluster: Cluster, end: () => number): Promise<void> {
  for (;;)
    try {
      const { position } = await ask<{ position: number }>(`${cluster.url}/v1/consumers/${CONSUMER}`)
      const query = `since_ts=${position}&limit=30&wait_ms=1000`
      const page = await ask<Page>(`${cluster.url}/v1/consumers/${CONSUMER}/changes?${query}`)
      if (page.txns.length > 0) {
        const positions = [{ consumer: CONSUMER, from: position, ts: page.next_ts }]
        const value = JSON.stringify({ to: page.next_ts, txns: page.txns.map(plain) } satisfies Applied)
        const ops = [{ op: 'put', key: `${APPLIED}${position}`, value }]
        await ask(`${cluster.url}/v1/txn`, { positions, ops })
      } else if (page.next_ts >= end()) return
    } catch (error) {
      const isLostRace = error instanceof Refused && (error.status === 409 || error.status === 423)
      if (!isLostRace) mustBeAway(error)
      await pause(100)
    }
}

/** All that the consumer has applied, in its order. */
export function appliedIn(pairs: Pairs): Reading {
  const reading = new Reading()
  const applied = [...pairs]
    .filter(([key]) => key.startsWith(APPLIED))
    .map(([key, value]) => ({ from: Number(key.slice(APPLIED.length)), ...(JSON.parse(value) as Applied) }))
    .sort((a, b) => a.from - b.from)
  for (const { from, to, txns } of applied) {
    expect(from, 'two transactions have applied the same').toBeGreaterThanOrEqual(reading.resolved)
    for (const txn of txns) reading.take(txn)
    reading.resolved = to
  }
  return reading
}

export const isApplied = ({ changes }: Txn): boolean => changes.every(({ key }) => key.startsWith(APPLIED))
