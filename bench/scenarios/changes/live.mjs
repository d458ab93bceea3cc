// One stream that follows, while transactions come as fast as they can: how many changes it is given, and what it leaves of the writes.
import { summaryOf } from '../../harness/numbers.mjs'
import { withPerkv } from '../../harness/perkv.mjs'
import { row } from '../../harness/report.mjs'
import { inTurn } from '../../harness/rounds.mjs'
import { countChanges, writeFresh } from './count.mjs'

const SHAPES = {
  PUTs: { size: 1, connections: 64, share: 0.1 },
  'transactions of 100 puts': { size: 100, connections: 4, share: 1, goal: 20_000, floor: 5000 },
}

export const live = {
  full: { changes: 200_000, rounds: 3 },
  quick: { changes: 50_000, rounds: 1 },
  async run({ changes, rounds }) {
    const rows = []
    for (const [shape, { size, connections, share, ...bounds }] of Object.entries(SHAPES)) {
      const count = changes * share
      const results = await withPerkv([], ({ url }) => {
        const alone = () => writeFresh(url, count, size, connections)
        return inTurn({ alone, given: () => given(url, count, alone) }, { rounds })
      })
      const { median, min, max } = summaryOf(results.given)
      rows.push(row(`given to a stream, ${shape}`, median, { unit: 'changes/s', spread: [min, max], ...bounds }))
      rows.push(row(`written without one, ${shape}`, summaryOf(results.alone).median, { unit: 'changes/s' }))
    }
    return rows
  },
}

/** @returns changes per second, from the first write to the last event. */
async function given(url, count, write) {
  let opened
  const isOpen = new Promise((resolve) => {
    opened = resolve
  })
  const counting = countChanges(url, '/v1/changes', { accept: 'text/event-stream', until: count, opened })
  await Promise.race([isOpen, counting])
  const since = performance.now()
  await Promise.all([write(), counting])
  return (count * 1000) / (performance.now() - since)
}
