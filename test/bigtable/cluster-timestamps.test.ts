import { afterAll, expect, test } from 'vitest'
import { Random } from '../anomalies/random.js'
import { report, settings } from '../anomalies/settings.js'
import { type Answered, violations } from '../oracle/timestamp-history.js'
import { killAll } from '../process/server-process.js'
import { Cluster } from './cluster.js'
import { startEmulator } from './emulator/emulator.mjs'

afterAll(killAll)

const { seed, kills } = settings({ seed: 1, txns: 0, kills: process.env['PERKV_TEST_LONG'] ? 2 : 1 })
const SERVERS = 3
const CLIENTS = 12
const QUIET_MS = 500

test('timestamps of three servers are in order while the one that hands them out is killed and stopped', async () => {
  const random = new Random(seed)
  const emulator = await startEmulator({ failBefore: 0.02, failAfter: 0.02, late: 0.01 })
  const cluster = await Cluster.start(emulator.host, SERVERS, random.fork())
  const answers: Answered[] = []
  let isOver = false
  /** From a kill of the leader to the next timestamp that anybody is given. */
  const gapsMs: number[] = []
  let killedAtMs = 0
  const client = async (): Promise<void> => {
    while (!isOver) {
      const server = cluster.url
      const began = performance.now()
      try {
        const answer = await fetch(`${server}/v1/percolator/tso`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: '{}',
        })
        if (!answer.ok) continue
        const { ts } = (await answer.json()) as { ts: number }
        const ended = performance.now()
        if (killedAtMs > 0 && began > killedAtMs) {
          gapsMs.push(ended - killedAtMs)
          killedAtMs = 0
        }
        answers.push({ server, began, ended, count: 1, last: ts })
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 10)) // It is dead.
      }
    }
  }
  const leader = async (): Promise<number> => {
    for (;;) {
      const at = await cluster.leader()
      if (at !== undefined) return at
    }
  }
  const chaos = async (): Promise<void> => {
    for (let i = 0; i < kills; i++) {
      const first = await leader()
      const restarting = cluster.restart(first)
      killedAtMs = performance.now()
      await restarting
      await cluster.pause(await leader(), 2500 + random.below(2000))
      await new Promise((resolve) => setTimeout(resolve, QUIET_MS))
    }
    isOver = true
  }
  try {
    await Promise.all([chaos(), ...Array.from({ length: CLIENTS }, client)])
    report({ test: 'cluster-timestamps', seed, timestamps: answers.length, gapsMs: gapsMs.map(Math.round) })
    expect(violations(answers)).toEqual([])
    expect(answers.length).toBeGreaterThan(100)
  } finally {
    await cluster.end()
    await emulator.stop()
  }
}, 300_000)
