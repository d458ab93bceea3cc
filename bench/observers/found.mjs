// From a document's PUT to its words being found, while the index of the example has documents already.
import { setTimeout as sleep } from 'node:timers/promises'
import { stemsOf } from '../../docs/examples/index/derived.mjs'
import { OBSERVERS } from '../../docs/examples/index/observers.mjs'
import { get, put } from '../ratios/request.mjs'
import { withPerkv } from '../scale/servers.mjs'
import { drained, register } from './cells.mjs'
import { changed, corpus, randomOf } from './corpus.mjs'
import { putDocuments } from './documents.mjs'
import { percentile, row } from './goals.mjs'
import { atRate } from './rate.mjs'
import { withWorker } from './workers.mjs'

const LOOK_MS = 1
const WARM_UP = 20

export async function found({ documents: limit, rates, seconds }) {
  const rows = []
  await withPerkv(({ url }) =>
    withWorker(url, async (worker) => {
      for (const [name, prefix] of OBSERVERS) await register(url, name, prefix)
      const documents = corpus(limit)
      await worker('keepIndex')
      await putDocuments(url, documents)
      await drained(
        url,
        OBSERVERS.map(([name]) => name),
      )
      for (const rate of rates) rows.push(...(await measure(url, documents, rate, seconds)))
      await worker('stop')
    }),
  )
  return { settings: { documents: limit, seconds }, rows }
}

async function measure(url, documents, rate, seconds) {
  const latencies = []
  const texts = [...documents.values()]
  const random = randomOf(rate)
  await atRate(url, rate, seconds, async (connection, n, dueAt) => {
    const name = `new/${rate}/${n}`
    const text = changed(texts[random(texts.length)], texts, random)
    const word = [...stemsOf(name, text).keys()].find((stem) => stem.startsWith('word/'))
    await connection.json(put(`/v1/kv/doc/${name}`, text))
    const search = get(`/v1/kv?prefix=${encodeURIComponent(`${word}/${name}`)}&keys_only=true`)
    while ((await connection.json(search)).pairs.length === 0) await sleep(LOOK_MS)
    if (n >= WARM_UP) latencies.push(performance.now() - dueAt)
  })
  await drained(
    url,
    OBSERVERS.map(([name]) => name),
  )
  const name = `PUT to words found, ${rate} documents/s`
  return [
    row(`${name}, p50`, percentile(latencies, 0.5), { unit: 'ms' }),
    row(`${name}, p99`, percentile(latencies, 0.99), { unit: 'ms' }),
  ]
}
