// A stream that reads the log of the past, from a server that has just started: nothing of it is in memory.
import { summaryOf } from '../../harness/numbers.mjs'
import { timestamp, withPerkvOn } from '../../harness/perkv.mjs'
import { makeDirectory } from '../../harness/process.mjs'
import { row } from '../../harness/report.mjs'
import { inTurn } from '../../harness/rounds.mjs'
import { countChanges, writeFresh } from './count.mjs'

const SHAPES = { 'of 1 change': { size: 1, connections: 64 }, 'of 100 changes': { size: 100, connections: 4 } }
/** Old values take a seek per change: fewer of them. */
const OLD_SHARE = 0.2

const KINDS = {
  'with values': { query: '', share: 1, goal: 30_000, floor: 8000 },
  'keys only': { query: '&keys_only=true', share: 1, goal: 100_000, floor: 20_000 },
  'with old values': { query: '&old_values=true', share: OLD_SHARE, goal: 3000, floor: 1000 },
}

export const catchUp = {
  full: { changes: 100_000, rounds: 3 },
  quick: { changes: 20_000, rounds: 1 },
  async run({ changes, rounds }) {
    const rows = []
    for (const [shape, { size, connections }] of Object.entries(SHAPES)) {
      const data = makeDirectory()
      const since = await withPerkvOn(data, [], async (server) => {
        const write = (share) => writeFresh(server.url, changes * share, size, connections)
        const early = await timestamp(server)
        await write(1 - OLD_SHARE)
        const late = await timestamp(server)
        await write(OLD_SHARE)
        return { 1: early, [OLD_SHARE]: late }
      })
      const read = ({ query, share }) =>
        withPerkvOn(data, [], async ({ url }) => {
          const path = `/v1/changes?since_ts=${since[share]}&wait_ms=0${query}`
          const counted = await countChanges(url, path)
          const wanted = Math.round(changes * share)
          if (counted.changes !== wanted) throw new Error(`${counted.changes} changes came instead of ${wanted}`)
          return counted.changes / counted.seconds
        })
      const contenders = Object.entries(KINDS).map(([kind, how]) => [kind, () => read(how)])
      const results = await inTurn(Object.fromEntries(contenders), { rounds })
      for (const [kind, { query: _, share: __, ...bounds }] of Object.entries(KINDS)) {
        const { median, min, max } = summaryOf(results[kind])
        const name = `catch-up ${kind}, transactions ${shape}`
        rows.push(row(name, median, { unit: 'changes/s', spread: [min, max], ...bounds }))
      }
    }
    return rows
  },
}
