import { once } from '../../event-loop/once.js'
import { laterTurn } from '../../event-loop/slices.js'
import { type Asked, families, type Measured } from './families.js'
import type { Family, Sample } from './family.js'
import { measureGc, ofProcess } from './process.js'

export interface Exposition {
  readonly type: string
  readonly text: string
}

/**
 * prom-client writes the text, and knows these of Node and the process. Those of them that it lists by walking over all
 * connections, and the lag of the event loop, for which it wakes an idle process, are left out.
 */
const PARTS = [
  () => import('prom-client/lib/metrics/processStartTime.js'),
  () => import('prom-client/lib/metrics/osMemoryHeap.js'),
  () => import('prom-client/lib/metrics/processMaxFileDescriptors.js'),
  () => import('prom-client/lib/metrics/heapSizeAndUsed.js'),
  () => import('prom-client/lib/metrics/heapSpacesSizeAndUsed.js'),
  () => import('prom-client/lib/metrics/version.js'),
]

/** Loaded at the first scrape, a module per turn of the event loop. */
const loaded = once(async () => {
  const { default: Registry } = await import('prom-client/lib/registry.js')
  const registry = new Registry()
  for (const part of PARTS) {
    await laterTurn()
    const { default: collect } = await part()
    collect(registry)
  }
  return { registry, gc: measureGc() }
})

/** Samples that are written at a time. */
const SAMPLES_AT_A_TIME = 100
/** A scrape takes no more of a turn than this, and the time of so many samples. Other work may take a whole slice. */
const TURN_MS_MAX = 3

/** The metrics in Prometheus' text format 0.0.4, written in slices. */
export async function exposition(measured: Measured, connections: number): Promise<Exposition> {
  const { registry, gc } = await loaded()
  let end = performance.now() + TURN_MS_MAX
  const pieces: string[] = []
  const write = async (all: Iterable<Family>): Promise<void> => {
    for (const { values, ...family } of all)
      for (const { samples, isFirst } of batches(values)) {
        const text = await registry.getMetricsAsString({ get: async () => ({ ...family, values: samples }) })
        pieces.push(isFirst ? text : withoutHead(text))
        if (performance.now() < end) continue
        await laterTurn()
        end = performance.now() + TURN_MS_MAX
      }
  }
  await write(families(measured, { connections, ...(await askedOf(measured)) }))
  await write(await ofProcess(gc))
  await laterTurn()
  return { type: registry.contentType, text: `${pieces.join('\n')}\n${await registry.metrics()}` }
}

interface Batch {
  readonly samples: readonly Sample[]
  readonly isFirst: boolean
}

/** At least one, because a family without samples has a head too. */
function* batches(all: Iterable<Sample>): Generator<Batch, void> {
  let [samples, isFirst]: [Sample[], boolean] = [[], true]
  for (const sample of all) {
    samples.push(sample)
    if (samples.length < SAMPLES_AT_A_TIME) continue
    yield { samples, isFirst }
    ;[samples, isFirst] = [[], false]
  }
  if (isFirst || samples.length > 0) yield { samples, isFirst }
}

/** Without the lines HELP and TYPE, which a family has once. */
function withoutHead(text: string): string {
  return text.slice(text.indexOf('\n', text.indexOf('\n') + 1) + 1)
}

/** Asked for together, outside of the event loop. */
async function askedOf({ database: { store } }: Measured): Promise<Omit<Asked, 'connections'>> {
  const known = async <T>(ask: () => Promise<T> | undefined): Promise<T | undefined> => {
    try {
      return await ask()
    } catch {
      return undefined
    }
  }
  const [storeBytes, diskSpace] = await Promise.all([
    known(() => store.files?.bytes()),
    known(() => store.files?.space()),
  ])
  return { storeBytes, diskSpace }
}
