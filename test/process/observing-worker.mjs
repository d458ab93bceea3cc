/** Keeps an index of the documents below `doc/`, until it is killed: node observing-worker.mjs URL */
import { connect } from '../../dist/client/index.js'

const db = connect(process.argv[2], { lockWaitMs: 1000 })
/** A document is its version and words, by spaces. */
const wordsOf = (text) => [...new Set((text ?? '').split(' ').slice(1))]

const index = async (txn, { key, value }) => {
  const name = key.slice('doc/'.length)
  const before = ((await txn.get(`derived/${name}`)) ?? '').split(' ').filter((word) => word !== '')
  const after = wordsOf(value)
  for (const word of before) if (!after.includes(word)) await txn.delete(`word/${word}/${name}`)
  for (const word of after) if (!before.includes(word)) await txn.put(`word/${word}/${name}`, '')
  await txn.put(`derived/${name}`, after.join(' '))
  const run = await txn.increment(`runs/${name}`)
  await txn.put(`run/${name}/${String(run).padStart(6, '0')}`, value?.split(' ')[0] ?? 'gone')
}
const options = { concurrency: 4, leaseMs: 1000, maxAttempts: 0, backoffMs: 10, backoffMaxMs: 100, onError: () => {} }

for (;;) {
  try {
    await db.observe('index', { prefix: 'doc/' }, index, options)
  } catch {
    await new Promise((resolve) => setTimeout(resolve, 50)) // The server is away.
  }
}
