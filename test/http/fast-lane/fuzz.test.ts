import { expect, test, vi } from 'vitest'
import { Random } from '../../anomalies/random.js'
import type { Dialogue } from './dialogue.js'
import { type Difference, differenceOf, type Lanes } from './difference.js'
import { Lane } from './lane.js'
import { shrunk } from './shrunk.js'
import { drawDialogue } from './streams.js'
import { type Variant, variants } from './variants.js'

/**
 * The same bytes to both lanes. Each dialogue has its own seed, so the seed of a failure runs that dialogue alone:
 *
 *   npm run fuzz:http                                           # a million dialogues
 *   PERKV_TEST_RUNS=1 PERKV_TEST_SEED=4711 npm run fuzz:http
 */
const { PERKV_TEST_RUNS, PERKV_TEST_SEED = '1', PERKV_TEST_REPORT } = process.env
const RUNS = Number(PERKV_TEST_RUNS ?? 300)
const FIRST_SEED = Number(PERKV_TEST_SEED)
const REPORT_EVERY = 10_000
/** Long, because a busy machine takes ten times as long as an idle one. */
const TIMEOUT_MS = 300_000 + 60 * RUNS

interface Failure {
  readonly seed: number
  readonly variant: Variant
  readonly smallest: Dialogue
  readonly difference: Difference
}

/** Runs dialogues on all pairs of lanes at once. @returns the first dialogue that goes differently, and is made small. */
async function firstFailure(pairs: readonly (readonly [Variant, Lanes])[], runs: number): Promise<Failure | undefined> {
  const shares = pairs.flatMap(([{ share = 1 }], index) => Array<number>(share).fill(index))
  let failure: Failure | undefined
  let done = 0
  const run = async (index: number, variant: Variant, lanes: Lanes): Promise<void> => {
    for (let seed = FIRST_SEED; seed < FIRST_SEED + runs && failure === undefined; seed++) {
      if (shares[seed % shares.length] !== index) continue
      const dialogue = drawDialogue(new Random(seed))
      const found = await differenceOf(lanes, dialogue)
      if (PERKV_TEST_REPORT && ++done % REPORT_EVERY === 0) console.log(`${done} dialogues`)
      if (found === undefined || failure !== undefined) continue
      failure = { seed, variant, smallest: dialogue, difference: found } // The others stop.
      let difference = found
      const smallest = await shrunk(dialogue, async (smaller) => {
        const still = await differenceOf(lanes, smaller)
        difference = still ?? difference
        return still !== undefined
      })
      failure = { ...failure, smallest, difference }
    }
  }
  await Promise.all(pairs.map(([variant, lanes], index) => run(index, variant, lanes)))
  return failure
}

function printed({ seed, variant, smallest, difference }: Failure): string {
  const { segments, pacing, end } = smallest
  return [
    `seed ${seed}, a server ${variant.name}, pacing ${pacing}, end ${end}:`,
    ...segments.map((segment) => `> ${JSON.stringify(segment.toString('latin1'))}`),
    ...Object.entries(difference.reference).flatMap(([client, outcome]) => ['', `node:http, ${client}:`, outcome]),
    ...['', 'fast lane:', difference.tested],
  ].join('\n')
}

async function withLanes<T>(lanes: readonly Promise<Lane>[], body: (lanes: readonly Lane[]) => Promise<T>): Promise<T> {
  const opened = await Promise.all(lanes)
  try {
    return await body(opened)
  } finally {
    for (const lane of opened) await lane.close()
  }
}

test(
  `${RUNS} dialogues from seed ${FIRST_SEED} on go the same way in both lanes`,
  async () => {
    const all = variants()
    const lanes = all.flatMap((variant) => [Lane.open(variant, false), Lane.open(variant, true)])
    await withLanes(lanes, async (opened) => {
      const pairs = all.map((variant, i) => {
        const [reference, tested] = opened.slice(2 * i) as [Lane, Lane]
        return [variant, { reference, tested }] as const
      })
      const failure = await firstFailure(pairs, RUNS)
      if (failure !== undefined) expect.fail(printed(failure))
      const nothing = { requests: 0, receiving: 0, bodyBytes: 0, answerBytes: 0, locks: 0, connections: [] }
      // The server hears of a closed connection later than the client.
      for (const lane of opened)
        await vi.waitFor(async () => expect(await lane.held()).toEqual(nothing), { timeout: 30_000 })
    })
  },
  TIMEOUT_MS,
)

test('finds a difference, and makes the dialogue small', { timeout: TIMEOUT_MS }, async () => {
  const variant = { name: 'in memory' }
  const other = { ...variant, limits: { valueBytesMax: 12 } }
  await withLanes([Lane.open(variant, false), Lane.open(other, false)], async ([reference, tested]) => {
    const failure = await firstFailure([[variant, { reference, tested } as Lanes]], 1000)
    const { smallest, difference } = failure ?? expect.fail('no difference was found')
    expect(smallest.segments.join('').length).toBeLessThan(150)
    expect(difference.reference['one by one']).not.toContain('HTTP/1.1 413 Payload Too Large')
    expect(difference.tested).toContain('HTTP/1.1 413 Payload Too Large')
  })
})
