// A worker: works on keys, asked of servers of PerKV by HTTP, or of PostgreSQL itself by its client. Both are this kind of process,
// since a generator takes of the processor what it costs to ask.
import pg from 'pg'
import { inLanes, load } from '../../harness/load.mjs'
import { fresh, keyOf, random, valueAt } from '../../harness/payload.mjs'
import { get, postJson, put } from '../../harness/requests.mjs'
import { answerCalls } from '../../harness/worker.mjs'

const UPSERT = `insert into bare (key, value) values ($1, $2)
  on conflict (key) do update set value = excluded.value, version = bare.version + 1`

const known = (keys) => ({ key: keyOf(random(keys)), value: valueAt(random(keys)) })
/** In order, so that no two transactions wait for each other in a circle. */
function twoKnown(keys) {
  const first = random(keys)
  const second = (first + 1 + random(keys - 1)) % keys
  return [first, second].sort((a, b) => a - b).map((n) => ({ key: keyOf(n), value: valueAt(random(keys)) }))
}

const putOf = ({ key, value }) => put(`/v1/kv/${key}`, value)
const transact = (ops) => postJson('/v1/txn', { ops })

const REQUESTS = {
  get: (keys) => get(`/v1/kv/${known(keys).key}`),
  put: (keys) => putOf(known(keys)),
  put_new: () => putOf(fresh()),
  txn: (keys) => transact(twoKnown(keys).map((pair) => ({ op: 'put', ...pair }))),
  transfer: (keys) =>
    transact(twoKnown(keys).map(({ key }, i) => ({ op: 'increment', key: `account-${key}`, by: i * 2 - 1 }))),
}

const upsert = (client, { key, value }) => client.query({ name: 'upsert', text: UPSERT, values: [key, value] })

const QUERIES = {
  async get(client, keys) {
    const text = 'select value from bare where key = $1'
    const { rows } = await client.query({ name: 'get', text, values: [known(keys).key] })
    if (rows.length !== 1) throw new Error('a key is missing')
  },
  put: (client, keys) => upsert(client, known(keys)),
  put_new: (client) => upsert(client, fresh()),
  async txn(client, keys) {
    await client.query('begin')
    for (const pair of twoKnown(keys)) await upsert(client, pair)
    await client.query('commit')
  },
}

const [url, ...others] = process.argv.slice(2)
const clients = []

async function query(work, connections, seconds, keys) {
  while (clients.length < connections) {
    const client = new pg.Client({ connectionString: url })
    client.on('error', () => {}) // Its query fails as well; or PostgreSQL ends, and this process does next.
    await client.connect()
    clients.push(client)
  }
  const free = clients.slice(0, connections)
  return inLanes(connections, seconds, async () => {
    const client = free.pop()
    await QUERIES[work](client, keys)
    free.push(client)
  })
}

/** Writers of one key may refuse each other. */
const ask = (work, connections, seconds, keys) =>
  load({ url: [url, ...others], connections, seconds, request: () => REQUESTS[work](keys), tolerated: [409] })

answerCalls({
  async run(...order) {
    const before = process.cpuUsage()
    const { rate, count, failed = 0, p50, p99 } = await (url.startsWith('http') ? ask : query)(...order)
    const { user, system } = process.cpuUsage(before)
    return { rate, count, failed, p50, p99, generator: (user + system) / 1e6 }
  },
})
