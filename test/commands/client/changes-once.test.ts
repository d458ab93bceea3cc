import { expect, test, vi } from 'vitest'
import type { ChangesOptions, Connection, ServerStatus } from '../../../src/client/index.js'
import { runCommand } from './run-command.js'

type Held = ServerStatus['feed']['heldBackBy']

/** A feed that stands at 5 for ten seconds. */
function standing(heldBackBy: Held): Connection {
  return {
    snapshot: async () => ({ ts: 10 }),
    status: async () => ({ feed: { heldBackBy } }),
    // biome-ignore lint/correctness/useYield: it has no transactions.
    async *changes({ onResolved }: ChangesOptions) {
      for (const resolvedTs of [5, 5, 10]) {
        await onResolved?.(resolvedTs)
        vi.advanceTimersByTime(10_000)
      }
    },
  } as unknown as Connection
}

const once = (heldBackBy: Held) => runCommand(standing(heldBackBy), ['changes', '--once', '--resolved'])

test('changes --once ends while a lock holds the feed back, and waits where none does: on a shared store a server was killed', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  try {
    expect((await once([])).output.toString()).toContain('"resolved_ts":10')
    const holder = { key: Buffer.from('k'), startTs: 4, expiresInMs: 100 } as unknown as Held[number]
    await expect(once([holder])).rejects.toMatchObject({ code: 'key_locked' })
  } finally {
    vi.useRealTimers()
  }
})
