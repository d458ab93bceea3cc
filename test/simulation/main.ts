import { parseArgs } from 'node:util'
import { STEPS_DEFAULT, STORES } from './faults.js'
import { type Options, type Outcome, simulate } from './world.js'

const USAGE = `usage: npm run sim -- [--seed N] [--seeds COUNT] [--steps N] [--store NAME] [--until-failure] [--trace]

  --seed N    the world to simulate; the first one of several (default 1)
  --seeds N   how many, one after another (default 1)
  --steps N   events until no fault strikes any more and all transactions are brought to an end (default 2000; shared: 5000)
  --store NAME     leveldb (default), or shared: three servers on one table
  --until-failure  stop after the first seed that fails
  --trace     print every event and every call

Exits 1 when anything was not as it must be.`

function print({ seed, violations, hash, profile, counts }: Outcome, steps: number, isVerbose: boolean): void {
  const what = violations.length === 0 ? 'ok' : `FAILED: ${violations.map(({ kind }) => kind).join(', ')}`
  console.log(`seed ${seed}  hash ${hash}  ${what}`)
  if (isVerbose) console.log(JSON.stringify({ profile, counts }, undefined, 2))
  if (violations.length === 0) return
  for (const { kind, detail } of violations) console.log(`  ${kind}: ${detail}`)
  console.log(`  again: npm run sim -- --seed ${seed} --steps ${steps} --store ${profile.store}`)
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: '1' },
      seeds: { type: 'string', default: '1' },
      steps: { type: 'string' },
      store: { type: 'string', default: 'leveldb' },
      'until-failure': { type: 'boolean', default: false },
      trace: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  const store = STORES.find((each) => each === values.store)
  const given = [values.seed, values.seeds, values.steps ?? STEPS_DEFAULT[store ?? 'leveldb']]
  const [seed, seeds, steps] = given.map(Number) as [number, number, number]
  if (values.help || store === undefined || ![seed, seeds, steps].every(Number.isSafeInteger)) {
    console.log(USAGE)
    return values.help ? 0 : 2
  }
  let failures = 0
  const trace: Pick<Options, 'trace'> = values.trace ? { trace: (line) => console.log(line) } : {}
  for (let at = seed; at < seed + seeds; at++) {
    const outcome = await simulate({ seed: at, steps, store, ...trace })
    if (outcome.violations.length > 0) failures++
    if (seeds === 1 || outcome.violations.length > 0) print(outcome, steps, seeds === 1)
    if (failures > 0 && values['until-failure']) return 1
  }
  if (seeds > 1) console.log(`${seeds} seeds, ${failures} failed`)
  return failures > 0 ? 1 : 0
}

process.exitCode = await main()
