import { afterAll, test } from 'vitest'
import { parsePostgresAddress } from '../../src/store/table/postgres/postgres-address.js'
import { openTable } from '../../src/store/table/postgres/postgres-table.js'
import { makeTable } from '../../src/store/table/postgres/table-admin.js'
import { Random } from '../anomalies/random.js'
import { settings } from '../anomalies/settings.js'
import { Cluster } from '../bigtable/cluster.js'
import { clusterHistory } from '../bigtable/cluster-history.js'
import { killAll } from '../process/server-process.js'
import { CuttingProxy } from './cutting-proxy.js'
import { PostgresServer } from './server.mjs'

afterAll(killAll)

const SETTINGS = settings({ seed: 1, txns: 200, kills: 3 })
const SERVERS = 3
/** One answer of PostgreSQL in this many is lost, with its connection. */
const LOST_ONE_IN = 400

test('three servers that are killed and stopped, on a PostgreSQL that is killed too, and whose answers are lost', {
  tags: ['long'],
  timeout: 600_000,
}, async () => {
  const random = new Random(SETTINGS.seed)
  const postgres = await PostgresServer.start()
  const proxy = await CuttingProxy.start(postgres.port)
  try {
    const text = postgres.url().replace(`:${postgres.port}/`, `:${proxy.port}/`)
    const address = parsePostgresAddress(text)
    await makeTable(address)
    const cuts = random.fork()
    proxy.isCut = () => cuts.below(LOST_ONE_IN) === 0
    const table = { address: text, env: {}, open: () => openTable(address) }
    const cluster = await Cluster.startOn(table, SERVERS, random.fork())
    await clusterHistory(cluster, {
      ...SETTINGS,
      random,
      async disturb(isOver) {
        for (let kills = 0; kills < SETTINGS.kills && !isOver(); kills++) {
          await new Promise((resolve) => setTimeout(resolve, 3000 + random.below(3000)))
          await postgres.stop('SIGKILL')
          await postgres.start()
        }
        proxy.isCut = () => false
      },
    })
  } finally {
    proxy.close()
    await postgres.end()
  }
})
