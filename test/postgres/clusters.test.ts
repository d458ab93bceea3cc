import { afterAll, test } from 'vitest'
import { parsePostgresAddress } from '../../src/store/table/postgres/postgres-address.js'
import { openTable } from '../../src/store/table/postgres/postgres-table.js'
import { makeTable } from '../../src/store/table/postgres/table-admin.js'
import { Random } from '../anomalies/random.js'
import { settings } from '../anomalies/settings.js'
import { pause } from '../bigtable/ask.js'
import { Cluster, type ClusterOptions, COLLECTING } from '../bigtable/cluster.js'
import { clusterFeed } from '../bigtable/cluster-feed.js'
import { clusterHistory, type HistoryOptions } from '../bigtable/cluster-history.js'
import { clusterLeases } from '../bigtable/cluster-leases.js'
import { clusterObservers } from '../bigtable/cluster-observers.js'
import { killAll } from '../process/server-process.js'
import { CuttingProxy } from './cutting-proxy.js'
import { PostgresServer } from './server.mjs'

afterAll(killAll)

const SERVERS = 3
/** One answer of PostgreSQL in this many is lost, with its connection. */
const LOST_ONE_IN = 400

type Body = (cluster: Cluster, options: HistoryOptions) => Promise<void>

interface Defaults {
  readonly txns: number
  readonly kills: number
}

/** Three servers on a PostgreSQL that is killed too, as often as they are, and whose answers are lost. */
async function onPostgres(body: Body, defaults: Defaults, options: ClusterOptions = {}): Promise<void> {
  const { seed, txns, kills } = settings({ seed: 1, ...defaults })
  const random = new Random(seed)
  const postgres = await PostgresServer.start()
  const proxy = await CuttingProxy.start(postgres.port)
  try {
    const text = postgres.url().replace(`:${postgres.port}/`, `:${proxy.port}/`)
    const address = parsePostgresAddress(text)
    await makeTable(address)
    const [cuts, crashes] = [random.fork(), random.fork()]
    const table = { address: text, env: {}, open: () => openTable(address) }
    const cluster = await Cluster.startOn(table, SERVERS, random.fork(), options)
    const disturb = async (isOver: () => boolean): Promise<void> => {
      proxy.isCut = () => cuts.below(LOST_ONE_IN) === 0
      for (let i = 0; !isOver(); i++) {
        for (const endsAt = Date.now() + 3000 + crashes.below(3000); Date.now() < endsAt && !isOver(); )
          await pause(100)
        if (i >= kills || isOver()) continue
        await postgres.stop('SIGKILL')
        await postgres.start()
      }
      proxy.isCut = () => false
    }
    await body(cluster, { seed, txns, kills, random, disturb, isCollecting: options === COLLECTING })
  } finally {
    proxy.close()
    await postgres.end()
  }
}

const WHAT = 'three servers that are killed and stopped, on a PostgreSQL that is killed too, and whose answers are lost'

const BANK = process.env['PERKV_TEST_LONG'] ? { txns: 200, kills: 3 } : { txns: 100, kills: 1 }
test(`${WHAT}: a bank and lists`, { timeout: 600_000 }, () => onPostgres(clusterHistory, BANK))

const long = (name: string, ...of: Parameters<typeof onPostgres>): void =>
  test(`${WHAT}: ${name}`, { tags: ['long'], timeout: 600_000 }, () => onPostgres(...of))

long('the feed is what they commit', clusterFeed, { txns: 0, kills: 1 })
long('the feed, while old versions are collected', clusterFeed, { txns: 0, kills: 1 }, COLLECTING)
long('an index of words by workers', clusterObservers, { txns: 200, kills: 3 }, COLLECTING)
long('holders of a lease never commit after the next grant', clusterLeases, { txns: 30, kills: 3 }, COLLECTING)
