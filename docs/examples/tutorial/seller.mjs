#!/usr/bin/env node
/**
 * Sells the seats of an evening.
 *
 *   node docs/examples/tutorial/seller.mjs open                       puts the seats on sale
 *   node docs/examples/tutorial/seller.mjs book ORDER NAME SEAT...
 *   node docs/examples/tutorial/seller.mjs cancel ORDER
 *   node docs/examples/tutorial/seller.mjs plan
 *
 * The server is at http://127.0.0.1:7400, or where PERKV_SERVER says. Exit codes: 0 done, 1 refused or failed, 2 used wrongly.
 */
import { connect, isKvError } from 'perkv/client'
import { book, cancel, drawPlan, open, Refused, readPlan } from './theatre.mjs'

const USAGE = 'use: open | book ORDER NAME SEAT... | cancel ORDER | plan'

const [command, order = '', name = '', ...seats] = process.argv.slice(2)
const db = connect(process.env['PERKV_SERVER'] ?? 'http://127.0.0.1:7400')
try {
  if (command === 'open') await open(db)
  else if (command === 'book' && seats.length > 0) await book(db, order, name, [...new Set(seats)])
  else if (command === 'cancel' && order !== '') await cancel(db, order)
  else if (command !== 'plan') throw new TypeError(USAGE)
  console.log(drawPlan(await readPlan(db)))
} catch (error) {
  if (error instanceof Refused) console.error(`refused: ${error.message}`)
  else if (isKvError(error, 'already_exists')) console.error('the seats are on sale already')
  else console.error(`seller.mjs: ${error instanceof Error ? error.message : error}`)
  process.exitCode = error instanceof TypeError ? 2 : 1
}
await db.close()
