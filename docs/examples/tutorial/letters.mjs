#!/usr/bin/env node
/**
 * Writes a letter to the customer for each booking, and for each cancellation. The letters are numbered without gaps.
 *
 *   node docs/examples/tutorial/letters.mjs      until Ctrl-C; start as many as you like
 *
 * The server is at http://127.0.0.1:7400, or where PERKV_SERVER says. Exit codes: 0 stopped, 1 failed.
 */
import { connect } from 'perkv/client'
import { BOOKINGS, LAST_LETTER, LETTERS } from './theatre.mjs'

/** @param {string} order @param {string | undefined} booking undefined: it is cancelled */
function letterOf(order, booking) {
  if (booking === undefined) return `Order ${order} is cancelled.`
  const { name, seats } = JSON.parse(booking)
  return `Dear ${name}, order ${order} is booked: ${seats.join(', ')}.`
}

/** @param {import('perkv/client').Txn} txn @param {{ readonly key: string, readonly value: string | undefined }} change */
async function writeLetter(txn, { key, value }) {
  const number = await txn.increment(LAST_LETTER)
  const name = String(number).padStart(4, '0')
  await txn.put(LETTERS + name, letterOf(key.slice(BOOKINGS.length), value))
}

const stop = new AbortController()
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) process.once(signal, () => stop.abort())
const db = connect(process.env['PERKV_SERVER'] ?? 'http://127.0.0.1:7400')
console.log('writes letters until Ctrl-C')
try {
  await db.observe('letters', { prefix: BOOKINGS }, writeLetter, {
    backfill: true, // If the observer is new: also for the bookings that are there.
    concurrency: 1, // Each letter needs the number of the one before.
    leaseMs: 5000, // What a killed worker had begun waits so long for another.
    maxAttempts: 3, // Then the change is parked, for people to look at.
    signal: stop.signal,
    onError: (error, change) =>
      console.error(`${change?.key ?? 'server'}: ${error instanceof Error ? error.message : error}`),
  })
} catch (error) {
  console.error(`letters.mjs: ${error instanceof Error ? error.message : error}`)
  process.exitCode = 1
}
await db.close()
