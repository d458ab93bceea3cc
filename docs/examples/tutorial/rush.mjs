#!/usr/bin/env node
/**
 * The first minute of the sale: customers want two seats each, all at once. Then it checks that no seat was sold twice, and waits
 * for the letters.
 *
 *   node docs/examples/tutorial/rush.mjs      needs seats on sale, and letters.mjs running
 *
 * The server is at http://127.0.0.1:7400, or where PERKV_SERVER says. Exit codes: 0 all is right, 1 it is not, or something failed.
 */
import { connect } from 'perkv/client'
import { BOOKINGS, book, FREE, LAST_LETTER, LETTERS, Refused, readPlan } from './theatre.mjs'

const CUSTOMERS = 16
const FIRST_ORDER = 2001
const PAIRS = ['A', 'B'].flatMap((row) => [`${row}1 ${row}2`, `${row}3 ${row}4`, `${row}5 ${row}6`])
const WAIT_MS_MAX = 20_000

/** @typedef {import('perkv/client').Db} Db */

/** Tries one pair after the other. @param {Db} db @param {number} customer @returns whether the customer has seats */
async function buy(db, customer) {
  for (const pair of PAIRS)
    try {
      await book(db, String(FIRST_ORDER + customer), `customer ${customer + 1}`, pair.split(' '))
      return true
    } catch (error) {
      if (!(error instanceof Refused)) throw error
    }
  return false
}

/** Compares bookings, seats and letters of one moment. @param {Db} db @returns how many bookings have no letter yet */
async function check(db) {
  const snapshot = await db.snapshot()
  const plan = await readPlan(snapshot)
  const letters = []
  for await (const letter of snapshot.scan({ prefix: LETTERS })) letters.push(letter)
  if (letters.length !== Number((await snapshot.get(LAST_LETTER)) ?? 0)) throw new Error('WRONG: a letter is missing')
  let sold = 0
  let unwritten = 0
  for await (const { key, value, commitTs } of snapshot.scan({ prefix: BOOKINGS })) {
    const order = key.slice(BOOKINGS.length)
    const { seats } = JSON.parse(value)
    for (const seat of seats) if (plan.get(seat) !== order) throw new Error(`WRONG: ${seat} is not that of ${order}`)
    sold += seats.length
    // An order that was cancelled and came again has an older letter of the same text.
    const text = `, order ${order} is booked: ${seats.join(', ')}.`
    const written = letters.filter((letter) => letter.commitTs > commitTs && letter.value.includes(text))
    if (written.length > 1) throw new Error(`WRONG: two letters for ${order}`)
    if (written.length === 0) unwritten++
  }
  const taken = [...plan.values()].filter((value) => value !== FREE).length
  if (taken !== sold) throw new Error(`WRONG: ${taken} seats are taken, ${sold} are booked`)
  return unwritten
}

const db = connect(process.env['PERKV_SERVER'] ?? 'http://127.0.0.1:7400')
try {
  const results = await Promise.all(Array.from({ length: CUSTOMERS }, (_, customer) => buy(db, customer)))
  const happy = results.filter((hasSeats) => hasSeats).length
  console.log(`${CUSTOMERS} customers at once: ${happy} have two seats each, ${CUSTOMERS - happy} have none`)
  await check(db)
  console.log('no seat is sold twice')
  const giveUpAt = Date.now() + WAIT_MS_MAX
  while ((await check(db)) > 0) {
    if (Date.now() > giveUpAt) throw new Error('nobody writes letters: start letters.mjs')
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  console.log('each booking has one letter')
} catch (error) {
  console.error(`rush.mjs: ${error instanceof Error ? error.message : error}`)
  process.exitCode = 1
}
await db.close()
