import { keyText } from '../../../bytes/key-text.js'
import { KvError } from '../../../errors/kv-error.js'
import type { Changed, ChangeTogether, RowCondition, RowWrite } from '../layout/table.js'
import { changeStatement } from './change-statement.js'
import type { ChangingRows } from './changing-rows.js'
import { Lanes } from './lanes.js'
import { lockStatement } from './lock-statement.js'
import { type PlannedChange, planChange } from './planned-change.js'
import { kindOf, mayBeOfOneRow, unavailable } from './postgres-failures.js'
import { inOneWrite, type PgClient, type Statement, ask as send, type TextRow } from './postgres-package.js'
import type { Sessions } from './sessions.js'

/** Few, so that many changes share a transaction and its round trips: each costs both sides more than a change in it. */
export const JOINT_LANES = 2
/** How long a transaction waits for the writes of a change whose rows are locked. */
const LOCKED_MS_MAX = 1000
/** In one transaction of PostgreSQL. */
const ROWS_MAX = 256
/** Keys and values of one row, and of the changes that share a transaction of PostgreSQL, if they are several. */
const CHANGE_BYTES_MAX = 16 << 20

interface Joint {
  /** In key order. */
  readonly rows: readonly RowCondition[]
  readonly names: readonly string[]
  readonly plan: () => Promise<readonly PlannedChange[] | undefined>
  readonly resolve: (changed: Changed) => void
  readonly reject: (error: unknown) => void
  state: 'waiting' | 'committing' | 'over'
}

export interface JointChangesOptions {
  readonly sessions: Sessions
  readonly table: string
  readonly waitMs: number
  /** By `keyText`. */
  readonly changing: ChangingRows
  /** Counts a round trip. */
  readonly ask: (client: PgClient, statement: Statement) => Promise<readonly TextRow[]>
}

/**
 * Changes of several rows, each in one transaction of PostgreSQL, which those that wait at the same time share: it locks all their
 * rows, hears from each what to write, writes that and commits, in two round trips. Rows that another transaction has locked are
 * not waited for, so that whoever holds one for long keeps up nobody else.
 */
export class JointChanges {
  readonly #options: JointChangesOptions
  readonly #lanes = new Lanes<Joint>(
    JOINT_LANES,
    (queue) => this.#next(queue),
    (batch) => this.#run(batch),
  )

  constructor(options: JointChangesOptions) {
    this.#options = options
    options.changing.onFree(() => this.#lanes.fill())
  }

  readonly change: ChangeTogether = (rows, writes, withinMs = this.#options.waitMs) =>
    new Promise((resolve, reject) => {
      const over = <T>(end: (value: T) => void) => {
        return (value: T): void => {
          clearTimeout(timer)
          joint.state = 'over'
          end(value)
        }
      }
      const giveUp = (): void => joint.resolve(joint.state === 'committing' ? 'unknown' : 'refused')
      const timer = setTimeout(giveUp, Math.min(withinMs, this.#options.waitMs))
      const order = rows.map((_, i) => i).sort((a, b) => Buffer.compare(keyOf(rows, a), keyOf(rows, b)))
      const ordered = order.map((i) => rows[i] as RowCondition)
      const joint: Joint = {
        rows: ordered,
        names: ordered.map(({ key }) => keyText(key)),
        async plan() {
          const all = await within(LOCKED_MS_MAX, writes())
          return all && order.map((i) => planned(rows[i] as RowCondition, all[i] ?? []))
        },
        resolve: over(resolve),
        reject: over(reject),
        state: 'waiting',
      }
      this.#lanes.add(joint)
    })

  #next(queue: readonly Joint[]): readonly Joint[] {
    const { changing } = this.#options
    const batch: Joint[] = []
    const taken = new Set<string>()
    let rows = 0
    for (const joint of queue) {
      if (!isWaiting(joint)) {
        batch.push(joint) // It was given up, so it leaves the queue.
        continue
      }
      const isFree = joint.names.every((name) => !changing.has(name) && !taken.has(name))
      // A change that has to wait keeps its rows from younger ones.
      for (const name of joint.names) taken.add(name)
      if (!isFree) continue
      rows += joint.rows.length
      if (rows > joint.rows.length && rows > ROWS_MAX) break
      batch.push(joint)
    }
    return batch
  }

  async #run(batch: readonly Joint[]): Promise<void> {
    const { changing } = this.#options
    const names = batch.filter(isWaiting).flatMap((joint) => joint.names)
    changing.hold(names, batch)
    try {
      await this.#runAll(batch)
    } finally {
      changing.free(names, batch)
    }
  }

  /** Never rejects. What is wrong with one change fails the transaction, so its halves are repeated apart. */
  async #runAll(batch: readonly Joint[]): Promise<void> {
    const joints = batch.filter(isWaiting)
    if (joints.length === 0) return
    try {
      await this.#options.sessions.with((client) => this.#commit(client, joints))
    } catch (error) {
      const left = joints.filter(({ state }) => state !== 'over')
      if (left.length > 1 && mayBeOfOneRow(error)) {
        for (const joint of left) joint.state = 'waiting'
        const half = left.length >> 1
        await this.#runAll(left.slice(0, half))
        return this.#runAll(left.slice(half))
      }
      const failure = kindOf(error) === 'lasting' ? unavailable(error) : undefined
      for (const { resolve, reject } of left) failure === undefined ? resolve('refused') : reject(failure)
    }
  }

  /** @throws errors of `pg`, where the changes that are not over are certainly not done. */
  async #commit(client: PgClient, joints: readonly Joint[]): Promise<void> {
    const { sessions, table } = this.#options
    const isWitnessed = sessions.isWitnessed(client)
    const ask = (statement: Statement) => this.#options.ask(client, statement)
    let going: readonly Joint[] = []
    try {
      const rows = joints.flatMap((joint) => joint.rows)
      const [, locked] = await inOneWrite(client, () =>
        Promise.all([send(client, { text: 'begin isolation level read committed' }), ask(lockStatement(table, rows))]),
      )
      const isLocked = new Set(locked.map(([i]) => Number(i) - 1))
      let at = 0
      const plans = await Promise.all(
        joints.map(({ rows, plan, reject }) => {
          const from = at
          at += rows.length
          return rows.every((_, i) => isLocked.has(from + i)) ? plan().catch(reject) : undefined
        }),
      )
      const chosen: Joint[] = []
      const changes: PlannedChange[] = []
      let bytes = 0
      for (const [i, joint] of joints.entries()) {
        const plan = plans[i]
        if (plan === undefined || !isWaiting(joint)) continue
        bytes = plan.reduce((sum, change) => sum + change.bytes, bytes)
        if (bytes > CHANGE_BYTES_MAX && chosen.length > 0) break // The others are refused, and come again.
        chosen.push(joint)
        changes.push(...plan)
      }
      going = chosen
      if (going.length === 0) await ask({ text: 'rollback' })
      else {
        for (const joint of going) joint.state = 'committing'
        const [done] = await inOneWrite(client, () =>
          Promise.all([
            ask(changeStatement(table, inOrder(changes), { isolation: 'read committed', isWitnessed })),
            send(client, { text: 'commit' }),
          ]),
        )
        sessions.noteCommit(client, done)
        // All rows were locked, so each is changed.
        for (const { resolve } of going) resolve(done.length === changes.length ? 'done' : 'unknown')
      }
      for (const joint of joints) if (isWaiting(joint)) joint.resolve('refused')
    } catch (error) {
      const kind = kindOf(error)
      if (kind === 'transient') for (const { resolve } of going) resolve('unknown')
      if (kind === 'conflict') await ask({ text: 'rollback' })
      throw error
    }
  }
}

function isWaiting({ state }: Joint): boolean {
  return state === 'waiting'
}

function keyOf(rows: readonly RowCondition[], i: number): Buffer {
  return (rows[i] as RowCondition).key
}

/** Rows are written in one order by all, as single ones are. */
function inOrder(changes: readonly PlannedChange[]): readonly PlannedChange[] {
  return [...changes].sort((a, b) => Buffer.compare(a.key, b.key))
}

/** @throws KvError `payload_too_large` */
function planned({ key, expected }: RowCondition, writes: readonly RowWrite[]): PlannedChange {
  const plan = planChange(key, expected, writes)
  if (plan.bytes > CHANGE_BYTES_MAX)
    throw new KvError('payload_too_large', 'a row is too large', { limit: CHANGE_BYTES_MAX })
  return plan
}

/** @returns undefined when it takes longer. */
function within<T>(ms: number, running: Promise<T>): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms, undefined)
    running.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
