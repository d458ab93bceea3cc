import { afterAll, expect, test } from 'vitest'
import { type ChangedTxn, connect, type Db } from '../../src/client/index.js'
import { Random } from '../anomalies/random.js'
import { report, settings } from '../anomalies/settings.js'
import { MortalServer } from './mortal-server.js'
import { killAll, withTempDir } from './server-process.js'

/** `npm run test:kill` is the long form. Transactions that are tried between two kills. */
const { seed, txns, kills } = settings({ seed: 1, txns: 300, kills: 5 })
const WRITERS = 6
const KEYS = Array.from({ length: 40 }, (_, i) => `k/${String(i).padStart(2, '0')}`)
const LAST = 'k/last'

afterAll(killAll)

interface Acknowledged {
  readonly commitTs: number
  readonly name: string
  readonly keys: number
}

function nameOf(commitTs: number, startTs: number): string {
  return `${commitTs} ${startTs}`
}

/** What a loop has been given. */
class Follower {
  readonly pairs = new Map<string, string>()
  /** By commit_ts and start_ts of a transaction: the number of its keys. */
  readonly committed = new Map<string, number>()
  #lastTs = 0
  snapshotTs = 0

  take({ isSnapshot, commitTs, startTs, changes, isLast }: ChangedTxn): void {
    expect(commitTs).toBeGreaterThanOrEqual(this.#lastTs)
    this.#lastTs = commitTs
    if (isSnapshot) this.snapshotTs = commitTs
    else {
      const name = nameOf(commitTs, startTs)
      expect([name, this.committed.get(name), isLast]).toEqual([name, undefined, true])
      this.committed.set(name, changes.length)
    }
    for (const change of changes) {
      if (change.op === 'put') this.pairs.set(change.key, change.value)
      else if (change.op === 'delete') this.pairs.delete(change.key)
    }
  }

  async follow(changes: AsyncIterable<ChangedTxn>): Promise<this> {
    for await (const txn of changes) {
      this.take(txn)
      if (this.pairs.has(LAST)) return this
    }
    throw new Error('the loop has ended')
  }
}

/** Transactions of one or more keys. @returns those that were acknowledged. */
async function write(db: Db, server: MortalServer, random: Random, onTry: () => boolean): Promise<Acknowledged[]> {
  const acknowledged: Acknowledged[] = []
  while (onTry()) {
    const keys = random.shuffled(KEYS).slice(0, 1 + random.below(5))
    const txn = await db.begin().catch(() => undefined)
    if (txn === undefined) {
      await server.isUp()
      continue
    }
    try {
      for (const key of keys)
        await (random.chance(0.2) ? txn.delete(key) : txn.put(key, `${txn.startTs} ${random.below(1e9)}`))
      const commitTs = await txn.commit()
      acknowledged.push({ commitTs, name: nameOf(commitTs, txn.startTs), keys: keys.length })
    } catch {
      await txn.rollback().catch(() => {})
    }
  }
  return acknowledged
}

test('kill -9 of a server: loops over its changes are given each transaction once, in order and whole; a watch ends with the last state', () =>
  withTempDir(async (data) => {
    const random = new Random(seed)
    const server = await MortalServer.start(data)
    const db = connect(server.url, { lockWaitMs: 1000 })
    const { ts } = await db.snapshot()
    const [fromBegin, withSnapshot, byPosition] = [new Follower(), new Follower(), new Follower()]
    /** A loop that is left again and again, and begun anew behind what it was given. */
    const followByPosition = async (): Promise<Follower> => {
      let position: string | undefined
      for (;;) {
        let left = 20
        const options = { prefix: 'k/', ...(position === undefined ? { sinceTs: ts } : { position }) }
        for await (const txn of db.changes(options)) {
          if (!byPosition.committed.has(nameOf(txn.commitTs, txn.startTs))) byPosition.take(txn)
          position = txn.position
          if (byPosition.pairs.has(LAST)) return byPosition
          if (--left === 0) break
        }
      }
    }
    const states: number[] = []
    const watch = async (): Promise<void> => {
      for await (const { value, commitTs } of db.watch(LAST)) {
        states.push(commitTs)
        if (value !== undefined) return
      }
    }
    let untilKill = txns
    let killsLeft = kills
    let killing: Promise<void> | undefined
    let snapshot: Promise<Follower> | undefined
    const kill = async (): Promise<void> => {
      await server.restart()
      snapshot ??= withSnapshot.follow(db.changes({ prefix: 'k/', snapshot: true, heartbeatMs: 1000 }))
      untilKill = txns
      killing = undefined
    }
    const onTry = (): boolean => {
      if (--untilKill <= 0 && killing === undefined) {
        if (killsLeft === 0) return false
        killsLeft--
        killing = kill()
        killing.catch(() => {}) // Awaited below.
      }
      return true
    }
    const loops = [fromBegin.follow(db.changes({ prefix: 'k/', sinceTs: ts })), followByPosition(), watch()]
    for (const loop of loops) loop.catch(() => {}) // Awaited below.
    const writing = Array.from({ length: WRITERS }, () => write(db, server, random.fork(), onTry))
    const acknowledged = (await Promise.all(writing)).flat()
    await killing
    const { commitTs } = await db.put(LAST, 'the end')
    await Promise.all([...loops, snapshot])

    const pairs = new Map<string, string>()
    for await (const { key, value } of db.scan({ prefix: 'k/', ts: commitTs })) pairs.set(key, value)
    const followers = [fromBegin, byPosition, withSnapshot]
    for (const follower of followers) {
      expect([...follower.pairs].sort()).toEqual([...pairs].sort())
      const due = acknowledged.filter(({ commitTs }) => commitTs > follower.snapshotTs)
      expect(due.map((one) => ({ ...one, keys: follower.committed.get(one.name) }))).toEqual(due)
    }
    expect([...byPosition.committed]).toEqual([...fromBegin.committed])
    expect(states).toEqual([0, commitTs])
    report({
      test: 'changes-kill',
      seed,
      kills: server.lives - 1,
      acknowledged: acknowledged.length,
      given: followers.map(({ committed }) => committed.size),
    })
    expect(server.lives).toBe(kills + 1)
    await db.close()
    await server.end()
  }))
