// One stream that follows, while transactions come as fast as they can: how many changes it is given, and what it leaves of the writes.

import { percentile, row } from '../observers/goals.mjs'
import { median } from '../process.mjs'
import { load } from '../ratios/load.mjs'
import { fresh, freshMany } from '../ratios/payload.mjs'
import { put } from '../ratios/request.mjs'
import { withPerkv } from '../scale/servers.mjs'
import { countChanges, putAll } from './count.mjs'

const SHAPES = {
  PUTs: { size: 1, connections: 64, share: 0.1 },
  'transactions of 100 puts': { size: 100, connections: 4, share: 1, goal: 20_000, floor: 5000 },
}

export async function live({ changes, rounds }) {
  const rows = []
  for (const [shape, { size, connections, share, ...bounds }] of Object.entries(SHAPES)) {
    const count = changes * share
    const [given, alone] = [[], []]
    await withPerkv(async ({ url }) => {
      const write = () =>
        load({
          url,
          connections,
          count: count / size,
          *operation() {
            const one = fresh()
            yield size === 1 ? put(`/v1/kv/${one.key}`, one.value) : putAll([one, ...freshMany(size - 1)])
          },
        })
      await write()
      for (let round = 0; round < rounds; round++) {
        alone.push((await write()).rate * size)
        let isOpen = () => {}
        const opened = new Promise((resolve) => {
          isOpen = resolve
        })
        const counting = countChanges(url, '/v1/changes', {
          accept: 'text/event-stream',
          until: count,
          opened: isOpen,
        })
        await Promise.race([opened, counting])
        const since = performance.now()
        await Promise.all([write(), counting])
        given.push((count * 1000) / (performance.now() - since))
      }
    })
    const spread = [percentile(given, 0), percentile(given, 1)]
    rows.push(row(`given to a stream, ${shape}`, median(given), { unit: 'changes/s', spread, ...bounds }))
    rows.push(row(`written without a stream, ${shape}`, median(alone), { unit: 'changes/s' }))
  }
  return { settings: { changes, rounds }, rows }
}
