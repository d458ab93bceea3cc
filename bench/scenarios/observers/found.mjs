// From a document's PUT to its words being found, while the index of the example has documents already.
import { setTimeout as sleep } from 'node:timers/promises'
import { stemsOf } from '../../../docs/examples/index/derived.mjs'
import { atRate } from '../../harness/load.mjs'
import { Random } from '../../harness/random.mjs'
import { latencyRows } from '../../harness/report.mjs'
import { get, put } from '../../harness/requests.mjs'
import { drained, withWorker } from './cells.mjs'
import { changed, corpus, OBSERVER_NAMES, putDocuments, registerIndex } from './corpus.mjs'

const LOOK_MS = 1
const WARM_UP = 20

export const found = {
  full: { documents: 1000, rates: [10, 100], seconds: 20 },
  quick: { documents: 50, rates: [20], seconds: 3 },
  run: ({ documents: limit, rates, seconds }) =>
    withWorker(async (server, worker) => {
      await registerIndex(server)
      const documents = corpus(limit)
      await worker.call('keepIndex')
      await putDocuments(server.url, documents)
      await drained(server, OBSERVER_NAMES)
      const rows = []
      for (const rate of rates) rows.push(...(await measure(server, documents, rate, seconds)))
      await worker.call('stop')
      return rows
    }),
}

async function measure(server, documents, rate, seconds) {
  const latencies = []
  const texts = [...documents.values()]
  const choices = new Random(rate)
  await atRate(server.url, rate, seconds, async (connection, n, dueAt) => {
    const name = `new/${rate}/${n}`
    const text = changed(texts[choices.below(texts.length)], texts, choices)
    const word = [...stemsOf(name, text).keys()].find((stem) => stem.startsWith('word/'))
    await connection.call(put(`/v1/kv/doc/${name}`, text))
    const search = get(`/v1/kv?prefix=${encodeURIComponent(`${word}/${name}`)}&keys_only=true`)
    while ((await connection.call(search)).pairs.length === 0) await sleep(LOOK_MS)
    if (n >= WARM_UP) latencies.push(performance.now() - dueAt)
  })
  await drained(server, OBSERVER_NAMES)
  return latencyRows(`PUT to words found, ${rate} documents/s`, latencies, { p50: {}, p99: {} })
}
