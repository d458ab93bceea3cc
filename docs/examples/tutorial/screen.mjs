#!/usr/bin/env node
/**
 * The screen in the foyer: a line for the plan as it is, and another for each booking that changes it.
 *
 *   node docs/examples/tutorial/screen.mjs      until Ctrl-C
 *
 * The server is at http://127.0.0.1:7400, or where PERKV_SERVER says. Exit codes: 0 stopped, 1 failed.
 */
import { connect, isKvError } from 'perkv/client'
import { drawPlan, SEATS } from './theatre.mjs'

const stop = new AbortController()
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) process.once(signal, () => stop.abort())

/** @param {import('perkv/client').Db} db */
async function follow(db) {
  const plan = new Map()
  // First the seats that are there, then every transaction that changes one of them.
  for await (const { changes, isLast } of db.changes({ prefix: SEATS, snapshot: true, signal: stop.signal })) {
    for (const change of changes) if (change.op === 'put') plan.set(change.key.slice(SEATS.length), change.value)
    if (isLast) console.log(drawPlan(plan)) // Whole transactions: never one seat of two.
  }
}

const db = connect(process.env['PERKV_SERVER'] ?? 'http://127.0.0.1:7400')
try {
  while (!stop.signal.aborted)
    await follow(db).catch((error) => {
      // Away for longer than the server keeps changes, ten minutes: begins with a new snapshot.
      if (!isKvError(error, 'ts_below_safe_point')) throw error
    })
} catch (error) {
  console.error(`screen.mjs: ${error instanceof Error ? error.message : error}`)
  process.exitCode = 1
}
await db.close()
