#!/usr/bin/env node
/**
 * A bank: tellers move money between accounts, all at once, while auditors add up the books. However they meet, no money
 * is made or lost, no account goes below zero, and every audit finds the same total.
 *
 *   node docs/examples/client/bank.mjs [URL]
 *
 * Keys are `bank/<run>/<name>`, new ones in each run. Exit codes: 0 the books are right, 1 they are not, or something
 * failed, 2 used wrongly.
 */
import { connect } from 'perkv/client'

const url = process.argv[2] ?? process.env['PERKV_SERVER'] ?? 'http://127.0.0.1:7400'
const NAMES = ['Ann', 'Bob', 'Joe', 'Sue', 'Zoë']
const START = 100
const TELLERS = 8
const TRANSFERS_EACH = 25
const AUDITS = 20

class InsufficientFunds extends Error {}

/** @param {import('perkv/client').Db} db @param {string} root @param {string} from @param {string} to @param {number} amount */
async function transfer(db, root, from, to, amount) {
  await db.transaction(
    async (txn) => {
      const balance = Number(await txn.getForUpdate(root + from)) // Whoever comes second waits here.
      if (balance < amount) throw new InsufficientFunds() // Rolls back, and comes out of db.transaction.
      await txn.increment(root + from, -amount)
      await txn.increment(root + to, amount)
    },
    { mode: 'pessimistic', retries: 100 },
  )
}

/** The total of all accounts at one moment. @param {import('perkv/client').Db} db @param {string} root */
async function audit(db, root) {
  let total = 0
  for await (const { key, value } of db.scan({ prefix: root })) {
    if (Number(value) < 0) throw new Error(`${key} is at ${value}`)
    total += Number(value)
  }
  return total
}

/** @template T @param {readonly T[]} items @returns {T} */
function anyOf(items) {
  return /** @type {T} */ (items[Math.floor(Math.random() * items.length)])
}

async function main() {
  const db = connect(url)
  const root = `bank/${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}/`
  await db.transaction(async (txn) => {
    for (const name of NAMES) await txn.insert(root + name, String(START))
  })

  const counts = { moved: 0, refused: 0 }
  const teller = async () => {
    for (let i = 0; i < TRANSFERS_EACH; i++) {
      const from = anyOf(NAMES)
      const to = anyOf(NAMES.filter((name) => name !== from))
      try {
        await transfer(db, root, from, to, 1 + Math.floor(Math.random() * START))
        counts.moved++
      } catch (error) {
        if (!(error instanceof InsufficientFunds)) throw error
        counts.refused++
      }
    }
  }
  /** @type {number[]} */
  const totals = []
  const auditor = async () => {
    while (totals.length < AUDITS) totals.push(await audit(db, root))
  }
  await Promise.all([...Array.from({ length: TELLERS }, teller), auditor()])

  const total = await audit(db, root)
  console.log(`${TELLERS} tellers: ${counts.moved} transfers, ${counts.refused} refused for want of money`)
  for await (const { key, value } of db.scan({ prefix: root })) {
    console.log(`  ${key.slice(root.length).padEnd(5)}${value.padStart(5)}`)
  }
  const expected = NAMES.length * START
  console.log(`total ${total} of ${expected}; ${totals.length} audits meanwhile: ${[...new Set(totals)].join(', ')}`)
  await db.close()
  if ([total, ...totals].some((one) => one !== expected)) throw new Error('the books are wrong')
}

try {
  await main()
} catch (error) {
  console.error(`bank.mjs: ${error instanceof Error ? error.message : String(error)}`)
  process.exitCode = error instanceof TypeError ? 2 : 1
}
