import { fork } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { STEPS_DEFAULT, STORES, type StoreName } from './faults.js'
import { simulate } from './world.js'

const USAGE = `usage: npm run sim:long -- [--seed N] [--seeds COUNT] [--steps N] [--store NAME] [--jobs N]

  --seed N    the first one (default 1)
  --seeds N   how many (default 10000)
  --steps N   events of each (default 2000; shared: 5000)
  --store NAME     as of npm run sim (default leveldb)
  --jobs N    processes (default: one a core)

Prints every seed that fails, and how to run it again. Exits 1 when one did.`

const SEEDS_AT_A_TIME = 20
const PROGRESS_MS = 10_000

/** Some seeds for a child to run. */
interface Task {
  readonly seed: number
  readonly seeds: number
  readonly steps: number
  readonly store: StoreName
}

/** What came of them. */
interface Done {
  readonly counts: Record<string, number>
  readonly failures: readonly { readonly seed: number; readonly details: readonly string[] }[]
}

function addTo(sums: Record<string, number>, counts: Readonly<Record<string, number>>): void {
  for (const [name, count] of Object.entries(counts)) sums[name] = (sums[name] ?? 0) + count
}

async function work({ seed, seeds, steps, store }: Task): Promise<Done> {
  const counts: Record<string, number> = {}
  const failures: Done['failures'][number][] = []
  for (let at = seed; at < seed + seeds; at++) {
    const outcome = await simulate({ seed: at, steps, store })
    addTo(counts, outcome.counts)
    addTo(counts, { [`world ${outcome.profile.durability}`]: 1 })
    if (outcome.violations.length === 0) continue
    failures.push({ seed: at, details: outcome.violations.map(({ kind, detail }) => `${kind}: ${detail}`) })
  }
  return { counts, failures }
}

async function lead(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: '1' },
      seeds: { type: 'string', default: '10000' },
      steps: { type: 'string' },
      store: { type: 'string', default: 'leveldb' },
      jobs: { type: 'string', default: String(availableParallelism()) },
      help: { type: 'boolean', default: false },
    },
  })
  const store = STORES.find((each) => each === values.store)
  const numbers = [values.seed, values.seeds, values.steps ?? STEPS_DEFAULT[store ?? 'leveldb'], values.jobs].map(
    Number,
  )
  if (values.help || store === undefined || !numbers.every(Number.isSafeInteger)) {
    console.log(USAGE)
    return values.help ? 0 : 2
  }
  const [first, seeds, steps, jobs] = numbers as [number, number, number, number]
  const begin = performance.now()
  const seconds = (): string => ((performance.now() - begin) / 1000).toFixed(0)
  const sums: Record<string, number> = {}
  const failed: number[] = []
  let next = first
  let done = 0
  const progress = setInterval(() => {
    console.log(`${done} of ${seeds} seeds, ${failed.length} failed, ${seconds()} s`)
  }, PROGRESS_MS)
  const runJob = async (): Promise<void> => {
    const child = fork(fileURLToPath(import.meta.url), { env: { ...process.env, PERKV_SIM_CHILD: '1' } })
    while (next < first + seeds) {
      const task: Task = { seed: next, seeds: Math.min(SEEDS_AT_A_TIME, first + seeds - next), steps, store }
      next += task.seeds
      const { counts, failures } = await new Promise<Done>((resolve, reject) => {
        child.once('message', (message) => {
          child.removeAllListeners('exit')
          resolve(message as Done)
        })
        child.once('exit', (code) => reject(new Error(`the child for seeds from ${task.seed} on ended with ${code}`)))
        child.send(task)
      })
      addTo(sums, counts)
      done += task.seeds
      for (const { seed, details } of failures) {
        failed.push(seed)
        console.log(`seed ${seed} FAILED`)
        for (const detail of details.slice(0, 5)) console.log(`  ${detail}`)
        console.log(`  again: npm run sim -- --seed ${seed} --steps ${steps} --store ${store}`)
      }
    }
    child.disconnect()
  }
  await Promise.all(Array.from({ length: jobs }, runJob))
  clearInterval(progress)
  console.log(`${seeds} seeds from ${first} on, ${steps} steps each, ${seconds()} s, ${failed.length} failed`)
  for (const name of Object.keys(sums).sort())
    console.log(`  ${name.padEnd(36)}${(sums[name] ?? 0).toLocaleString('en')}`)
  for (const seed of failed) console.log(`again: npm run sim -- --seed ${seed} --steps ${steps} --store ${store}`)
  return failed.length > 0 ? 1 : 0
}

if (process.env['PERKV_SIM_CHILD'] === '1')
  process.on('message', (task) => void work(task as Task).then((done) => process.send?.(done)))
else process.exitCode = await lead()
