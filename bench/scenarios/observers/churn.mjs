// An index kept by observers beside the same index made by batches, after a part of the documents changed: the work of server and
// workers, and the time.
import { INDEX_PREFIXES } from '../../../docs/examples/index/derived.mjs'
import { settle } from '../../harness/disk.mjs'
import { cpuMicros } from '../../harness/process.mjs'
import { Random } from '../../harness/random.mjs'
import { get } from '../../harness/requests.mjs'
import { drained, withWorker } from './cells.mjs'
import { changesOf, corpus, OBSERVER_NAMES, putDocuments, registerIndex } from './corpus.mjs'

const SEED = 14
const NAMES = {
  incremental: 'kept by observers',
  rebuild: 'rebuilt',
  difference: 'rebuilt in memory, differences written',
}

export const churn = {
  full: { documents: 2000, shares: [0.01, 0.1, 1] },
  quick: { documents: 100, shares: [0.1, 1] },
  async run({ documents: limit, shares }) {
    const documents = corpus(limit)
    const results = {}
    for (const [name, contender] of Object.entries({ incremental, rebuild, difference }))
      results[name] = await withWorker((server, worker) => contender({ server, worker }, documents, shares))
    const [wanted, ...others] = Object.values(results).map(({ keys }) => keys)
    if (others.some((keys) => keys !== wanted)) throw new Error(`the indexes differ: ${[wanted, ...others]} keys`)
    const rows = [undefined, ...shares].map((share, i) => ({
      'changed, CPU s': share === undefined ? 'first load' : `${share * 100} %`,
      ...Object.fromEntries(Object.entries(NAMES).map(([name, title]) => [title, results[name].cpu[i]])),
    }))
    const crossings = ['rebuild', 'difference'].map((name) => {
      const gaps = shares.map((_, i) => results.incremental.cpu[i + 1] - results[name].cpu[i + 1])
      return `Observers cost as much as \`${name}\` ${crossingOf(gaps, shares)}.`
    })
    const text = `${documents.size} documents, ${wanted} keys in the index. ${crossings.join(' ')}`
    return { blocks: [rows, text] }
  },
}

/** Loads everything, then changes parts; `work` is done once the index is right. @returns CPU seconds of each. */
async function steps({ server, worker }, documents, shares, work) {
  const choices = new Random(SEED)
  const present = new Map(documents)
  const seconds = []
  for (const share of [undefined, ...shares]) {
    const changes = share === undefined ? present : changesOf(present, share, choices)
    for (const [name, text] of changes) present.set(name, text)
    await settle(server)
    const micros = () => cpuMicros(server).all + cpuMicros(worker).all
    const before = micros()
    await putDocuments(server.url, changes)
    await work()
    await settle(server) // What LevelDB compacts because of it is its work too.
    seconds.push((micros() - before) / 1e6)
  }
  return seconds
}

async function incremental(setting, documents, shares) {
  const { server, worker } = setting
  await registerIndex(server)
  await worker.call('keepIndex')
  const cpu = await steps(setting, documents, shares, () => drained(server, OBSERVER_NAMES))
  await worker.call('stop')
  return { cpu, keys: await countKeys(server, '') }
}

/**
 * Each generation of the index stands below a prefix of its own. The one before it is not deleted: that is left out of the work
 * of the rebuild, since it depends on how an application drops an index.
 */
async function rebuild(setting, documents, shares) {
  let generation = 0
  const cpu = await steps(setting, documents, shares, () => {
    generation++
    return setting.worker.call('rebuild', `index-${generation}/`)
  })
  return { cpu, keys: await countKeys(setting.server, `index-${generation}/`) }
}

async function difference(setting, documents, shares) {
  const cpu = await steps(setting, documents, shares, () => setting.worker.call('difference'))
  return { cpu, keys: await countKeys(setting.server, '') }
}

async function countKeys(server, root) {
  let keys = 0
  for (const prefix of INDEX_PREFIXES)
    keys += (await server.call(get(`/v1/kv?count_only=true&prefix=${root}${prefix}`))).count
  return keys
}

/** @returns the share of changed documents at which both cost the same, on straight lines between what was measured. */
function crossingOf(gaps, shares) {
  const after = gaps.findIndex((gap) => gap > 0)
  if (after === -1) return 'at no share: less at every one'
  if (after === 0) return `below ${shares[0] * 100} %`
  const [low, high] = [gaps[after - 1], gaps[after]]
  const share = shares[after - 1] + ((shares[after] - shares[after - 1]) * -low) / (high - low)
  return `at ${(share * 100).toPrecision(2)} %`
}
