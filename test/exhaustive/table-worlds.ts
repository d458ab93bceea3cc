import type { Database } from '../../src/database/database.js'
import { physicalMs, TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import type { OneShot } from '../../src/txn/one-shot.js'
import type { TableWorld } from './table-servers.js'

const bytes = (text: string): Buffer => Buffer.from(text)
const text = (value: Uint8Array): string => Buffer.from(value).toString()
const TRIES = { checks: [], maxRetries: 10, lockWaitMs: 20_000 }

async function numberAt(
  database: Database,
  key: string,
): Promise<{ readonly value: number; readonly commitTs: Timestamp }> {
  const found = await database.get({ key: bytes(key) }, () => ({ lockWaitMs: 20_000 }))
  return found.found ? { value: Number(text(found.value)), commitTs: found.commitTs } : { value: 0, commitTs: 0 }
}

/**
 * One request and its repeat under an Idempotency-Key, at two servers. It takes effect once, whoever dies, and every answer is of that
 * one time; until its outcome expires.
 */
export const repeated =
  (isCollected: boolean): TableWorld =>
  async (servers) => {
    const [one, other] = [await servers.open(), await servers.open()]
    const idempotency = { key: bytes('once'), mayWrite: true, fingerprint: bytes('the same') }
    const ops = ['a', 'b'].map((key) => ({ op: 'increment' as const, key: bytes(key), by: 1 }))
    const request: OneShot = { ...TRIES, ops, idempotency }
    const answers = new Set<Timestamp | undefined>()
    const ask = async (database: Database): Promise<void> => {
      const { answer } = await database.transact(request)
      answers.add(answer.commitTs)
    }
    const collect = async (database: Database): Promise<void> => {
      await database.gc(servers.ts)
    }
    await servers.decided([one, ask], [other, ask], ...(isCollected ? [[await servers.open(), collect] as const] : []))
    const third = await servers.open()
    await servers.together([third, ask])
    let wrong: string | undefined
    const requireApplied =
      (times: number) =>
      async (database: Database): Promise<void> => {
        for (const key of ['a', 'b']) {
          const { value, commitTs } = await numberAt(database, key)
          if (value !== times) wrong ??= `${key} was incremented ${value} times, not ${times}`
          if (!answers.has(commitTs) || answers.size > 1)
            wrong ??= `${key} is of ${commitTs}, and the answers are of ${[...answers]}`
        }
      }
    await servers.together([third, requireApplied(1)])
    await servers.pass(700_000)
    answers.clear()
    await servers.together([third, ask])
    await servers.together([third, requireApplied(2)])
    return wrong
  }

/** Transfers between two accounts at two servers, one of which remembers rows, and somebody who reads both accounts at one timestamp, and again. */
export const transferred =
  (isCollected: boolean): TableWorld =>
  async (servers) => {
    const [one, other, reader] = [await servers.open(), await servers.open(), await servers.open()]
    const [keys, told, reads] = [['a', 'b'].map(bytes), new Map<number, boolean>(), new Map<Timestamp, string>()]
    let wrong: string | undefined
    const transfer =
      (by: number, mode?: 'optimistic' | 'pessimistic') =>
      async (database: Database): Promise<void> => {
        told.set(by, false)
        const ops = keys.map((key, i) => ({ op: 'increment' as const, key, by: i === 0 ? -by : by }))
        if (mode === undefined) await database.transact({ ...TRIES, ops })
        else {
          const { txn } = await database.transactions.begin({ mode, isolation: 'snapshot', ttlMs: 3000 })
          await database.transactions.run(txn, ops)
          await database.transactions.commit(txn, undefined)
        }
        told.set(by, true)
      }
    const read = async (database: Database, ts?: Timestamp): Promise<Timestamp> => {
      const found = await database.batchGet({ keys, ts, lockWaitMs: 20_000 })
      const values = found.pairs.map(({ value }) => Number(text(value ?? bytes(''))))
      const shown = values.join(' and ')
      if (values.reduce((sum, value) => sum + value, 0) !== 0) wrong ??= `${shown} are no sum, at ${found.ts}`
      if ((reads.get(found.ts) ?? shown) !== shown) wrong ??= `${shown} were ${reads.get(found.ts)}, at ${found.ts}`
      reads.set(found.ts, shown)
      return found.ts
    }
    const collect = async (database: Database): Promise<void> => {
      await database.gc(servers.ts)
    }
    await servers.together([one, transfer(0)])
    await servers.decided(
      [one, transfer(1)],
      [other, transfer(2, 'pessimistic')],
      [reader, async (database) => void (await read(database, await read(database)))],
      ...(isCollected ? [[await servers.open(), collect] as const] : []),
    )
    const last = await servers.open()
    await servers.together([one, transfer(4, 'optimistic')], [last, transfer(8)])
    const check = async (database: Database): Promise<void> => {
      for (const ts of reads.keys()) if (ts >= database.store.safePoint) await read(database, ts)
      const { value } = await numberAt(database, 'b')
      for (const [by, isDone] of told) if (isDone && (value & by) !== by) wrong ??= `the transfer of ${by} is lost`
    }
    await servers.together([last, check])
    return wrong
  }

const TTL_MS = 1000

/** Two holders of a lease at two servers, who write under it, and may attach a key. */
export const fenced =
  (attaches: boolean): TableWorld =>
  async (servers) => {
    const [one, other] = [await servers.open(), await servers.open()]
    const fences = new Map<string, Timestamp>()
    let wrong: string | undefined
    const hold =
      (holder: string) =>
      async (database: Database): Promise<void> => {
        const grant = await database.leases.put('lease', { holder, ttlMs: TTL_MS, waitMs: 20_000 })
        fences.set(holder, grant.fence)
        await requireNone(database, grant.fence)
        const commitEffects = { leases: [{ lease: 'lease', fence: grant.fence, index: 0 }] }
        const log = { op: 'put' as const, key: bytes(`by ${holder}`), value: bytes(holder) }
        const up = { op: 'put' as const, key: bytes('up'), value: bytes(holder), lease: 'lease' }
        const ops = attaches ? [log, up] : [log]
        await database.transact({ ...TRIES, ops, commitEffects })
      }
    const requireNone = async (database: Database, fence: Timestamp): Promise<void> => {
      const { pairs } = await database.batchGet({ keys: [bytes('up')], lockWaitMs: 20_000 })
      for (const { leaseFence = 0 } of pairs)
        if (leaseFence < fence) wrong ??= `a key is attached to ${leaseFence}, and ${fence} was granted`
    }
    await servers.decided([one, hold('h1')], [other, hold('h2')])
    const third = await servers.open()
    await servers.together([third, hold('h3')])
    await servers.together([
      third,
      async (database) => {
        await database.leases.remove('lease', 'h3')
        const granted = [...fences.values()].sort((a, b) => a - b)
        const early = granted.find((fence, i) => physicalMs(fence) - physicalMs(granted[i - 1] ?? 0) < TTL_MS)
        if (early !== undefined) wrong ??= `${early} was granted before the term of another had ended`
        for (const [holder, fence] of fences) {
          const found = await database.get({ key: bytes(`by ${holder}`) }, () => ({ lockWaitMs: 20_000 }))
          if (!found.found) continue
          const { commitTs } = found
          const later = [...fences.values()].find((each) => each > fence && each < commitTs)
          if (commitTs <= fence) wrong ??= `a commit under ${fence} at ${commitTs}`
          if (later !== undefined) wrong ??= `a commit under ${fence} at ${commitTs}, after ${later} was granted`
        }
        await requireNone(database, TIMESTAMP_MAX)
      },
    ])
    if (!fences.has('h3')) wrong ??= 'the lease does not end'
    return wrong
  }

const OBSERVER = 'observer'

/** Somebody who writes an observed key, and two who run it, at three servers. */
export const acknowledged: TableWorld = async (servers) => {
  const [writer, one, other] = [await servers.open(), await servers.open(), await servers.open()]
  const key = bytes('o/1')
  const known = new Set<Timestamp>()
  const write = async (database: Database): Promise<void> => {
    const { answer } = await database.transact({ ...TRIES, ops: [{ op: 'put', key, value: bytes('v') }] })
    known.add(answer.commitTs ?? 0)
  }
  const work = async (database: Database): Promise<void> => {
    const claim = { worker: 'w', limit: 1, waitMs: 500, leaseMs: 1000 }
    for (const { fence } of await database.observers.claim(OBSERVER, claim)) {
      const ops = [{ op: 'put' as const, key: bytes(`run ${fence}`), value: bytes(`${fence}`) }]
      const commitEffects = { acks: [{ observer: OBSERVER, key, fence }] }
      const { answer } = await database.transact({ ...TRIES, ops, commitEffects })
      known.add(answer.commitTs ?? 0)
    }
  }
  const register = async ({ observers }: Database): Promise<void> => {
    await observers.put(OBSERVER, { range: { prefix: bytes('o/') } })
  }
  await servers.together([writer, register])
  await servers.together([writer, write])
  await servers.decided([writer, write], [one, work], [other, work])
  let wrong: string | undefined
  const check = async (database: Database): Promise<void> => {
    const { writes } = await database.store.mvccGetByKey({ key })
    const scan = { start: bytes('run '), end: bytes('run~'), limit: 100, reverse: false, keyOnly: false, bytesMax: 1e6 }
    const { pairs } = await database.scan({ ...scan, lockWaitMs: 20_000 })
    const runs = pairs.map(({ value = bytes(''), commitTs = 0 }) => ({ seen: Number(text(value)), commitTs }))
    const changes = writes.filter(({ type }) => type === 'put').map(({ commitTs }) => commitTs)
    let [covered, before] = [0, 0]
    for (const { seen, commitTs } of runs.sort((a, b) => a.commitTs - b.commitTs)) {
      if (seen < before) wrong ??= `a run at ${commitTs} began before the one of ${before} had committed`
      if (!changes.some((ts) => ts > covered && ts <= seen)) wrong ??= `the run at ${commitTs} has no change of its own`
      ;[covered, before] = [seen, commitTs]
    }
    const lost = changes.find((ts) => ts > covered)
    if (lost !== undefined) wrong ??= `the change at ${lost} was not run: the last one has seen ${covered}`
    for (const ts of known)
      if (ts !== 0 && ![...changes, ...runs.map(({ commitTs }) => commitTs)].includes(ts))
        wrong ??= `the commit at ${ts} is gone`
    const { pending } = await database.observers.get(OBSERVER)
    if (pending !== 0) wrong ??= `${pending} cells are dirty`
  }
  const last = await servers.open()
  for (let left = 4; left > 0; left--) await servers.together([last, work])
  await servers.together([last, check])
  return wrong
}
