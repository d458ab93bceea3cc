import fc from 'fast-check'
import { expect, test } from 'vitest'
import { keyText } from '../../src/bytes/key-text.js'
import { isKvError } from '../../src/errors/kv-error.js'
import { attachedKey } from '../../src/percolator/codec/attached-key.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { Op } from '../../src/txn/op.js'
import { turn, utf8 } from '../store/support.js'
import { Attaching, attachedRows } from './attaching.js'

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 20)
const MINUTE = 60_000
/** Added to each term by a restart. */
const RESTART_MS = 2000
/** Turns of the event loop in which the end of a lease has to be over. */
const TURNS_MAX = 100_000

type Mode = 'at once' | 'optimistic' | 'pessimistic'
type Step =
  | { readonly do: 'grant'; readonly name: string; readonly ttlMs: number }
  | { readonly do: 'release'; readonly name: string }
  | { readonly do: 'write'; readonly ops: readonly Written[]; readonly mode: Mode }
  | { readonly do: 'pass'; readonly ms: number }
  | { readonly do: 'restart' }

interface Written {
  readonly op: 'attach' | 'put' | 'delete' | 'touch' | 'increment'
  readonly key: string
  readonly name: string
}

const name = fc.constantFrom('a', 'b')
const written: fc.Arbitrary<Written> = fc.record({
  op: fc.constantFrom('attach', 'attach', 'attach', 'put', 'delete', 'touch', 'increment'),
  key: fc.constantFrom('1', '2', '3', '4'),
  name,
})
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('grant' as const), name, ttlMs: fc.constantFrom(1000, 5000, MINUTE) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('release' as const), name }) },
  {
    weight: 12,
    arbitrary: fc.record({
      do: fc.constant('write' as const),
      ops: fc.array(written, { minLength: 1, maxLength: 4 }),
      mode: fc.constantFrom<Mode>('at once', 'at once', 'optimistic', 'pessimistic'),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.constantFrom(1, 999, 1000, 3000, MINUTE) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
)

interface Term {
  readonly fence: Timestamp
  readonly ttlMs: number
  endsAtMs: number
}

/** The leases that are held, and the fence of each key that is present; 0: it is attached to none. */
class Model {
  readonly terms = new Map<string, Term>()
  keys = new Map<string, Timestamp>()

  end(name: string): void {
    const fence = this.terms.get(name)?.fence
    this.terms.delete(name)
    for (const [key, attachedTo] of this.keys) if (attachedTo === fence) this.keys.delete(key)
  }

  pass(elapsedMs: number): void {
    for (const [name, { endsAtMs }] of this.terms) if (endsAtMs <= elapsedMs) this.end(name)
  }

  /** @returns undefined when a lease is not held. */
  after(ops: readonly Written[]): Map<string, Timestamp> | undefined {
    const keys = new Map(this.keys)
    for (const { op, key, name } of ops) {
      const fence = this.terms.get(name)?.fence
      if (op === 'attach' && fence === undefined) return undefined
      if (op === 'attach') keys.set(key, fence ?? 0)
      else if (op === 'put' || (op === 'increment' && !keys.has(key))) keys.set(key, 0)
      else if (op === 'delete') keys.delete(key)
    }
    return keys
  }
}

function opOf({ op, key: text, name: lease }: Written): Op {
  const key = utf8(text)
  const value = utf8('1')
  switch (op) {
    case 'attach':
      return { op: 'put', key, value, lease }
    case 'put':
      return { op, key, value }
    case 'delete':
      return { op, key }
    case 'touch':
      return { op, key, expiry: { ttlMs: 1_000_000_000 } }
    case 'increment':
      return { op, key, by: 1 }
  }
}

class Run {
  readonly model = new Model()
  /** The last fence of each name, in force or not. */
  readonly fences = new Map<string, Timestamp>()

  constructor(readonly attaching: Attaching) {}

  async do(step: Step): Promise<void> {
    const { attaching, model } = this
    switch (step.do) {
      case 'grant': {
        const { name, ttlMs } = step
        const fence = await attaching.grant(name, ttlMs)
        const before = model.terms.get(name)
        if (before === undefined) expect(fence).toBeGreaterThan(this.fences.get(name) ?? 0)
        else expect(fence).toBe(before.fence)
        this.fences.set(name, fence)
        // A renewal takes away nothing of the time that a restart has added.
        const notBeforeMs = before?.ttlMs === ttlMs ? before.endsAtMs : 0
        model.terms.set(name, { fence, ttlMs, endsAtMs: Math.max(attaching.clocks.elapsedMs + ttlMs, notBeforeMs) })
        return
      }
      case 'release':
        expect(await attaching.database.leases.remove(step.name, 'me')).toEqual({ deleting: false })
        model.end(step.name)
        return this.compare() // At once.
      case 'write':
        return this.#write(step.ops, step.mode)
      case 'pass':
        attaching.pass(step.ms)
        model.pass(attaching.clocks.elapsedMs)
        return
      case 'restart':
        await attaching.restart()
        for (const term of model.terms.values()) term.endsAtMs = attaching.clocks.elapsedMs + term.ttlMs + RESTART_MS
        return
    }
  }

  async #write(ops: readonly Written[], mode: Mode): Promise<void> {
    const names = new Set(ops.filter(({ op }) => op === 'attach').map(({ name }) => name))
    const leases = [...names].map((lease) => ({ lease, fence: this.fences.get(lease) ?? 1 }))
    const after = this.model.after(ops)
    try {
      if (mode === 'at once') await this.attaching.run(ops.map(opOf), leases)
      else {
        const { transactions } = this.attaching.database
        const { txn } = await transactions.begin({ mode, isolation: 'snapshot', ttlMs: MINUTE })
        await transactions.run(txn, ops.map(opOf))
        await transactions.commit(txn, undefined, leases.length === 0 ? undefined : { leases })
      }
    } catch (error) {
      if (!isKvError(error, 'precondition_failed')) throw error
      expect(after).toBeUndefined()
      return
    }
    expect(after).toBeDefined()
    this.model.keys = after ?? this.model.keys
  }

  /** The store has the keys of the model, attached as there, and the rows of those that are attached. */
  async compare(): Promise<void> {
    const { attaching, model } = this
    expect(await attaching.keys()).toEqual([...model.keys.keys()].sort())
    const rows = await attachedRows(attaching.database.store)
    for (const [key, fence] of model.keys) {
      expect(await attaching.fenceOf(key), key).toBe(fence === 0 ? undefined : fence)
      if (fence !== 0) expect(rows.has(keyText(attachedKey(fence, utf8(key))))).toBe(true)
    }
  }

  /** Waits for what goes on in the background. */
  async settled(): Promise<void> {
    const { leases } = this.attaching.database
    for (let turns = 0; leases.summary().ending > 0; turns++) {
      if (turns === TURNS_MAX) throw new Error('the end of a lease is not over')
      await turn()
    }
  }
}

test('keys end with the lease that their present version is attached to', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
      const attaching = await Attaching.open()
      const run = new Run(attaching)
      for (const each of steps) {
        await run.do(each)
        await run.settled()
        await run.compare()
      }
      expect(attaching.errors).toEqual([])
      await attaching.close()
    }),
    { numRuns: RUNS },
  )
}, 120_000)
