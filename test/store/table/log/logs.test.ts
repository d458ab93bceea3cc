import fc from 'fast-check'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { CommittedTxn } from '../../../../src/store/table/log/log-record.js'
import type { Fate } from '../memory-table.js'
import { SimulatedLogs, type SimulatedTxn } from './simulated-logs.js'

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 5)
const SEED = Number(process.env['PERKV_TEST_SEED'] ?? Number.NaN)

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

type Step =
  | { readonly type: 'txn'; readonly server: number; readonly txn: SimulatedTxn }
  | { readonly type: 'removal'; readonly server: number; readonly txn: SimulatedTxn }
  | { readonly type: 'kill'; readonly server: number }
  | { readonly type: 'stop'; readonly server: number }
  | { readonly type: 'stand'; readonly server: number; readonly ms: number }
  | { readonly type: 'pass'; readonly ms: number }
  | { readonly type: 'late' }
  | { readonly type: 'reader' }
  | { readonly type: 'collect'; readonly server: number }

const server = fc.nat({ max: 2 })
const txns: fc.Arbitrary<SimulatedTxn> = fc.record({
  keys: fc.integer({ min: 1, max: 3 }),
  thinkMs: fc.oneof({ weight: 4, arbitrary: fc.nat({ max: 40 }) }, fc.nat({ max: 2000 })),
  restMs: fc.oneof({ weight: 4, arbitrary: fc.nat({ max: 40 }) }, fc.nat({ max: 30_000 })),
  change: fc.oneof({ weight: 6, arbitrary: fc.constant('done' as const) }, fc.constantFrom('lost', 'never')),
  aheadMs: fc.oneof({ weight: 6, arbitrary: fc.constant(0) }, fc.nat({ max: 3000 })),
  twice: fc.oneof({ weight: 6, arbitrary: fc.constant(false) }, fc.boolean()),
})
const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 16, arbitrary: fc.record({ type: fc.constant('txn'), server, txn: txns }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constant('removal'), server, txn: txns }) },
  { weight: 4, arbitrary: fc.record({ type: fc.constant('pass'), ms: fc.nat({ max: 300 }) }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('pass'), ms: fc.nat({ max: 25_000 }) }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constantFrom('kill', 'stop'), server }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constant('collect'), server: fc.nat({ max: 1 }) }) },
  {
    weight: 2,
    arbitrary: fc.record({ type: fc.constant('stand'), server, ms: fc.integer({ min: 100, max: 30_000 }) }),
  },
  { weight: 1, arbitrary: fc.record({ type: fc.constantFrom('late', 'reader') }) },
) as fc.Arbitrary<Step>

const delays = fc.oneof({ weight: 20, arbitrary: fc.nat({ max: 5 }) }, fc.nat({ max: 300 }))

const fates: fc.Arbitrary<Fate> = fc.oneof(
  { weight: 12, arbitrary: fc.constant<Fate>('done') },
  fc.constantFrom<Fate>('not done', 'done, answer lost', 'late'),
)

function byCommitTs(txns: readonly CommittedTxn[]): string[] {
  const text = ({ startTs, commitTs, keys }: CommittedTxn): string => `${commitTs} ${startTs} ${keys.join(' ')}`
  return [...txns].sort((a, b) => a.commitTs - b.commitTs || a.startTs - b.startTs).map(text)
}

let pollMs = 0
/** As often as anything else happens, and rarely in the long rests. */
function everyMs(): number {
  return pollMs
}

async function perform(logs: SimulatedLogs, step: Step): Promise<void> {
  if (step.type === 'txn') void logs.run(step.server, step.txn)
  else if (step.type === 'removal') void logs.remove(step.server, step.txn)
  else if (step.type === 'kill') logs.kill(step.server)
  else if (step.type === 'stop') await Promise.race([logs.stop(step.server), logs.leap(100)])
  else if (step.type === 'pass') await logs.leap(step.ms)
  else if (step.type === 'late') logs.table.catchUp()
  else if (step.type === 'collect') void logs.collect(step.server)
  else if (step.type === 'reader') void logs.reader().follow(everyMs)
  else {
    const { table } = logs.server(step.server)
    table.pause()
    setTimeout(() => table.goOn(), step.ms)
  }
}

test('each reader gets every committed transaction once, whole and in order, and never one that it has passed', {
  tags: ['long'],
}, async () => {
  const totals = { committed: 0, ended: 0, expired: 0, unavailable: 0 }
  await fc.assert(
    fc.asyncProperty(
      fc.array(steps, { minLength: 20, maxLength: 60, size: 'max' }),
      fc.infiniteStream(fates),
      fc.infiniteStream(delays),
      fc.boolean(),
      async (all, fateStream, delayStream, isPrompt) => {
        const logs = new SimulatedLogs(
          () => fateStream.next().value,
          () => delayStream.next().value,
          isPrompt,
        )
        pollMs = 5
        void logs.reader().follow(everyMs)
        for (const step of all) await perform(logs, step)
        pollMs = 500
        await logs.leap(35_000)
        for (const i of [0, 1, 2, 3]) logs.kill(i)
        logs.table.catchUp()
        await logs.leap(25_000)
        for (const reader of logs.readers) reader.isStopped = true
        const newest = logs.committed.reduce((max, { commitTs }) => Math.max(max, commitTs), 0)
        for (const [name, count] of Object.entries(logs.counts)) totals[name as keyof typeof totals] += count
        expect(logs.wrong).toEqual([])
        for (const reader of logs.readers) {
          expect(reader.failure).toBeUndefined()
          expect(reader.position).toBeGreaterThanOrEqual(newest)
          const since = logs.committed.filter(({ commitTs }) => commitTs > reader.since)
          expect(byCommitTs(reader.seen)).toEqual(byCommitTs(since))
          expect(reader.seen.map(({ commitTs }) => commitTs)).toEqual(
            [...reader.seen].map(({ commitTs }) => commitTs).sort((a, b) => a - b),
          )
        }
      },
    ),
    { numRuns: RUNS, endOnFailure: true, ...(Number.isNaN(SEED) ? {} : { seed: SEED }) },
  )
  if (process.env['PERKV_TEST_REPORT']) console.log(JSON.stringify(totals))
})
