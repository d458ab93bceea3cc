// A stream that reads the log of the past, from a server that has just started: nothing of it is in memory.

import { percentile, row } from '../observers/goals.mjs'
import { median } from '../process.mjs'
import { load } from '../ratios/load.mjs'
import { fresh, freshMany } from '../ratios/payload.mjs'
import { put } from '../ratios/request.mjs'
import { withDirectory, withPerkvOn } from '../scale/servers.mjs'
import { countChanges, putAll } from './count.mjs'

const SIZES = { 'of 1 change': 1, 'of 100 changes': 100 }
const CONNECTIONS = 64
/** A seek per change: fewer of them. */
const OLD_SHARE = 0.2

const KINDS = {
  'with values': { query: '', goal: 30_000, floor: 8000 },
  'keys only': { query: '&keys_only=true', goal: 100_000, floor: 20_000 },
  'with old values': { query: '&old_values=true', goal: 3000, floor: 1000 },
}

export async function catchUp({ changes, rounds }) {
  const rows = []
  for (const [shape, size] of Object.entries(SIZES))
    await withDirectory(async (data) => {
      const marks = await withPerkvOn(data, ({ url }) => fill(url, changes, size))
      for (const [kind, { query, ...bounds }] of Object.entries(KINDS)) {
        const rates = []
        for (let round = 0; round < rounds; round++)
          await withPerkvOn(data, async ({ url }) => {
            const since = kind === 'with old values' ? marks.late : marks.early
            const path = `/v1/changes?since_ts=${since}&wait_ms=0${query}`
            const counted = await countChanges(url, path)
            const wanted = Math.round(kind === 'with old values' ? changes * OLD_SHARE : changes)
            if (counted.changes !== wanted) throw new Error(`${counted.changes} changes came instead of ${wanted}`)
            rates.push(counted.changes / counted.seconds)
          })
        const spread = [percentile(rates, 0), percentile(rates, 1)]
        rows.push(row(`${kind}, transactions ${shape}`, median(rates), { unit: 'changes/s', spread, ...bounds }))
      }
    })
  return { settings: { changes, rounds }, rows }
}

/** @returns timestamps before all of the changes, and before the last of them. */
async function fill(url, changes, size) {
  const now = async () => (await (await fetch(`${url}/v1/percolator/tso`, { method: 'POST' })).json()).ts
  const fillSome = (some) =>
    load({
      url,
      connections: size === 1 ? CONNECTIONS : 4,
      count: Math.round(some / size),
      *operation() {
        const one = fresh()
        yield size === 1 ? put(`/v1/kv/${one.key}`, one.value) : putAll([one, ...freshMany(size - 1)])
      },
    })
  const early = await now()
  await fillSome(changes * (1 - OLD_SHARE))
  const late = await now()
  await fillSome(changes * OLD_SHARE)
  return { early, late }
}
