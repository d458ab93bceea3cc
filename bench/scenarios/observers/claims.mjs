// Claiming many cells by some workers at once.
import { withConnections } from '../../harness/connection.mjs'
import { withPerkv } from '../../harness/perkv.mjs'
import { row } from '../../harness/report.mjs'
import { postJson } from '../../harness/requests.mjs'
import { LONG_LEASE_MS, putCells, register } from './cells.mjs'

const WORKERS = 8
const LIMIT = 64

export const claims = {
  full: { cells: 100_000 },
  quick: { cells: 20_000 },
  run: ({ cells }) =>
    withPerkv([], async (server) => {
      await register(server, 'claimed', 'claimed/')
      await putCells(server, 'claimed/', 0, cells)
      const keys = []
      let longest = 0
      const since = performance.now()
      await withConnections(server.url, WORKERS, async (connection, i) => {
        const body = { worker: `worker-${i}`, limit: LIMIT, lease_ms: LONG_LEASE_MS }
        const request = postJson('/v1/observers/claimed/claim', body)
        for (;;) {
          const from = performance.now()
          const { notifications } = await connection.call(request)
          longest = Math.max(longest, performance.now() - from)
          if (notifications.length === 0) return
          for (const { key } of notifications) keys.push(key)
        }
      })
      const seconds = (performance.now() - since) / 1000
      if (keys.length !== cells || new Set(keys).size !== cells)
        throw new Error(`${keys.length} cells were handed out, ${new Set(keys).size} different ones of ${cells}`)
      const name = `claims of ${cells} keys, ${WORKERS} workers, ${LIMIT} per call`
      return [
        row(name, cells / seconds, { unit: 'keys/s', goal: 30_000, floor: 10_000 }),
        row('their longest call', longest, { unit: 'ms', goal: 100, floor: 500, isAtMost: true }),
      ]
    }),
}
