import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { AckContext, AckOutcome, AckRequest } from '../../../src/observers/rules/acknowledge.js'
import { BrokenInvariant, CellHistory, histories, RULES, type Rules } from './cell-history.js'

/**
 * Random histories of one cell. The long run:
 *
 *   PERKV_TEST_RUNS=300000 PERKV_TEST_REPORT=1 npx vitest run test/observers/rules/acknowledge-histories.test.ts --test-timeout=3600000
 */
const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 5000)
const SEED = Number(process.env['PERKV_TEST_SEED'] ?? 1)

test('in random histories of a cell every run covers a change of its own, and no change is forgotten', {
  tags: ['long'],
}, () => {
  let runs = 0
  fc.assert(
    fc.property(histories, (events) => {
      const history = new CellHistory(RULES)
      history.run(events)
      runs += history.runs
    }),
    { numRuns: RUNS, seed: SEED },
  )
  if (process.env['PERKV_TEST_REPORT']) console.log(`${RUNS} histories, ${runs} committed runs`)
  expect(runs).toBeGreaterThan(RUNS / 2)
})

describe('the histories find that', () => {
  type Acknowledge = (request: AckRequest, context: AckContext) => AckOutcome
  const acknowledging = (acknowledge: Acknowledge): Rules => ({ ...RULES, acknowledge })
  const claimedAt = ({ effect, seen }: AckRequest): number => Math.min(effect.fence, seen)
  const defects: readonly { readonly name: string; readonly rules: Rules }[] = [
    {
      name: 'a run commits though another one has committed since its claim (no rule 4)',
      rules: acknowledging((request, context) => {
        const { ack } = context
        if (ack === undefined || ack.startTs === request.startTs) return RULES.acknowledge(request, context)
        const commitTs = Math.min(ack.commitTs, claimedAt(request))
        return RULES.acknowledge(request, { ...context, ack: { ...ack, commitTs } })
      }),
    },
    {
      name: 'the entry is always deleted',
      rules: acknowledging((request, context) => {
        const outcome = RULES.acknowledge(request, context)
        return outcome.kind === 'acknowledged' ? { ...outcome, isClean: true } : outcome
      }),
    },
    {
      name: 'a commit of two phases replaces the entry unseen',
      rules: { ...RULES, markCell: (observer, mark) => RULES.markCell(observer, mark) },
    },
    {
      name: 'a commit of two phases does not see the change of a parked cell',
      rules: { ...RULES, uncovered: (notification) => notification },
    },
    {
      name: 'a run below the safe point commits, whose conflict may be collected',
      rules: acknowledging((request, context) => RULES.acknowledge(request, { ...context, safePoint: 0 })),
    },
    {
      name: 'the claim of a run does not count, only its start',
      rules: acknowledging((request, context) => {
        const effect = { ...request.effect, fence: Math.max(request.effect.fence, request.seen) }
        return RULES.acknowledge({ ...request, effect }, { ...context, newestFence: 0 })
      }),
    },
    {
      name: 'a one-shot covers what was committed after its claim',
      rules: acknowledging((request, context) =>
        RULES.acknowledge({ ...request, seen: Math.max(request.seen, request.startTs) }, context),
      ),
    },
    {
      name: 'a run without a change of its own commits while a newer one stands',
      rules: acknowledging((request, context) =>
        RULES.acknowledge(request, { ...context, newestSeen: () => request.seen }),
      ),
    },
    {
      name: 'a version from before the observer counts as a change',
      rules: acknowledging((request, context) => RULES.acknowledge(request, { ...context, observedSince: 0 })),
    },
    {
      name: 'a run takes the commit of a one-shot for its own',
      rules: acknowledging((request, context) => {
        const { ack } = context
        return RULES.acknowledge(request, { ...context, ack: ack && { ...ack, startTs: ack.ackTs } })
      }),
    },
  ]
  for (const { name, rules } of defects)
    test(name, () => {
      const property = fc.property(histories, (events) => new CellHistory(rules).run(events))
      const found = fc.check(property, { numRuns: 100_000, seed: SEED })
      if (process.env['PERKV_TEST_REPORT']) console.log(`${name}: ${found.numRuns}; ${found.errorInstance}`)
      expect(found.errorInstance).toBeInstanceOf(BrokenInvariant)
    })
})
