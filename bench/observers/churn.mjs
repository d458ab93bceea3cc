// An index kept by observers beside the same index made by batches, after a part of the documents changed: the work of server and
// workers, and the time.
import { INDEX_PREFIXES } from '../../docs/examples/index/derived.mjs'
import { OBSERVERS } from '../../docs/examples/index/observers.mjs'
import { lines } from '../chart.mjs'
import { scheduledMicros } from '../proc.mjs'
import { get } from '../ratios/request.mjs'
import { settle } from '../ratios/stage.mjs'
import { withPerkv } from '../scale/servers.mjs'
import { drained, register } from './cells.mjs'
import { withConnections } from './connection.mjs'
import { changesOf, corpus, randomOf } from './corpus.mjs'
import { putDocuments } from './documents.mjs'
import { withWorker } from './workers.mjs'

const SEED = 14
const NAMES = OBSERVERS.map(([name]) => name)
const CHARTED = [
  ['incremental', 'observers'],
  ['rebuild', 'rebuilt'],
  ['difference', 'differences written'],
]

export async function churn({ documents: limit, shares }) {
  const documents = corpus(limit)
  const contenders = { incremental, rebuild, difference }
  const results = {}
  for (const [name, run] of Object.entries(contenders))
    results[name] = await withPerkv((server, data) =>
      withWorker(server.url, (worker) => run({ server: { ...server, data }, worker }, documents, shares)),
    )
  const [wanted, ...others] = Object.values(results).map(({ keys }) => keys)
  if (others.some((keys) => keys !== wanted)) throw new Error(`the indexes differ: ${[wanted, ...others]} keys`)
  const rows = [undefined, ...shares].map((share, i) => ({
    changed: share === undefined ? 'first load' : `${share * 100} %`,
    documents: share === undefined ? documents.size : Math.max(1, Math.round(documents.size * share)),
    ...Object.fromEntries(
      Object.entries(results).flatMap(([name, { steps }]) => [
        [`${name}, CPU s`, steps[i].cpu],
        [`${name}, s`, steps[i].wall],
      ]),
    ),
  }))
  const crossover = Object.fromEntries(
    ['rebuild', 'difference'].map((name) => [name, crossoverOf(rows.slice(1), shares, name)]),
  )
  return {
    settings: { documents: documents.size, index_keys: wanted, changed_words: 0.1, seed: SEED },
    rows,
    crossover,
    charts: { 'observers-churn': chart(rows.slice(1), shares) },
  }
}

/** Loads everything, then changes parts; `work` is done once the index is right. */
async function steps({ server, worker }, documents, shares, work) {
  const random = randomOf(SEED)
  const present = new Map(documents)
  const results = []
  for (const share of [undefined, ...shares]) {
    const changes = share === undefined ? present : changesOf(present, share, random)
    for (const [name, text] of changes) present.set(name, text)
    await settle(server)
    const micros = () => scheduledMicros(server).all + scheduledMicros(worker.process).all
    const before = micros()
    const since = performance.now()
    await putDocuments(server.url, changes)
    await work()
    const wall = (performance.now() - since) / 1000
    await settle(server) // What LevelDB compacts because of it is its work too.
    results.push({ wall, cpu: (micros() - before) / 1e6 })
  }
  return results
}

async function incremental(setting, documents, shares) {
  const { server, worker } = setting
  for (const [name, prefix] of OBSERVERS) await register(server.url, name, prefix)
  await worker('keepIndex')
  const done = await steps(setting, documents, shares, () => drained(server.url, NAMES))
  await worker('stop')
  return { steps: done, keys: await countKeys(server.url, '') }
}

/**
 * Each generation of the index stands below a prefix of its own. The one before it is not deleted: that is left out of the work
 * of the rebuild, since it depends on how an application drops an index.
 */
async function rebuild(setting, documents, shares) {
  let generation = 0
  const done = await steps(setting, documents, shares, () => {
    generation++
    return setting.worker('rebuild', `index-${generation}/`)
  })
  return { steps: done, keys: await countKeys(setting.server.url, `index-${generation}/`) }
}

async function difference(setting, documents, shares) {
  const done = await steps(setting, documents, shares, () => setting.worker('difference'))
  return { steps: done, keys: await countKeys(setting.server.url, '') }
}

async function countKeys(url, root) {
  let keys = 0
  await withConnections(url, 1, async ([connection]) => {
    for (const prefix of INDEX_PREFIXES)
      keys += (await connection.json(get(`/v1/kv?count_only=true&prefix=${root}${prefix}`))).count
  })
  return keys
}

/** @returns the share of changed documents at which both cost the same, on straight lines between what was measured. */
function crossoverOf(rows, shares, name) {
  const gaps = rows.map((row) => row['incremental, CPU s'] - row[`${name}, CPU s`])
  const after = gaps.findIndex((gap) => gap > 0)
  if (after === -1) return 'none: observers cost less at every share'
  if (after === 0) return `below ${shares[0] * 100} %`
  const [low, high] = [gaps[after - 1], gaps[after]]
  const share = shares[after - 1] + ((shares[after] - shares[after - 1]) * -low) / (high - low)
  return `${(share * 100).toPrecision(2)} %`
}

function chart(rows, shares) {
  return lines({
    title: 'Processor time to bring an index up to date',
    x: { label: 'documents that changed, %', kind: 'log10' },
    y: { label: 'CPU seconds of server and worker', kind: 'log10' },
    series: CHARTED.map(([field, name]) => ({
      name,
      points: rows.map((row, i) => [shares[i] * 100, row[`${field}, CPU s`]]),
    })),
  })
}
