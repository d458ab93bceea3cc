#!/usr/bin/env node
/**
 * A work queue: producers add jobs, workers take them. A worker takes a job, does it and files the result in one
 * transaction, so a job is done exactly once: a worker that dies halfway leaves it as it was, for another.
 *
 *   node docs/examples/client/queue.mjs [URL]
 *
 * Keys are `queue/<run>/todo/<number>` and `queue/<run>/done/<number>`, new ones in each run. Exit codes: 0 every job was
 * done once, 1 not, or something failed, 2 used wrongly.
 */
import { connect } from 'perkv/client'

const url = process.argv[2] ?? process.env['PERKV_SERVER'] ?? 'http://127.0.0.1:7400'
const JOBS = 60
const WORKERS = 5
/** Workers pick among the first so many, so that they rarely want the same one. */
const CHOICE = 2 * WORKERS
/** Now and then a worker fails in the middle of a job. */
const FAILS_ONE_IN = 5

class WorkerDied extends Error {}

/** @param {number} number */
const numbered = (number) => String(number).padStart(6, '0')

/**
 * Adds a job under the next number.
 * @param {import('perkv/client').Db} db @param {string} root @param {string} payload
 */
async function produce(db, root, payload) {
  await db.transaction(
    async (txn) => {
      const number = await txn.increment(`${root}last`)
      await txn.insert(`${root}todo/${numbered(number)}`, payload)
    },
    { mode: 'pessimistic', retries: 100 },
  )
}

/**
 * Does one job. @param {import('perkv/client').Db} db @param {string} root @param {string} name
 * @returns {Promise<'done' | 'missed' | 'empty'>}
 */
async function work(db, root, name) {
  return db.transaction(
    async (txn) => {
      const keys = []
      for await (const { key } of txn.scan({ prefix: `${root}todo/`, limit: CHOICE, keysOnly: true })) keys.push(key)
      const key = keys[Math.floor(Math.random() * keys.length)]
      if (key === undefined) return 'empty'
      const payload = await txn.getForUpdate(key) // Locks the job, and reads the latest: it may be done by now.
      if (payload === undefined) return 'missed'
      if (Math.random() < 1 / FAILS_ONE_IN) throw new WorkerDied(name)
      await txn.put(key.replace('/todo/', '/done/'), `${payload.toUpperCase()} by ${name}`)
      await txn.increment(`${root}done by ${name}`)
      await txn.delete(key)
      return 'done'
    },
    { mode: 'pessimistic', retries: 100 },
  )
}

async function main() {
  const db = connect(url)
  const root = `queue/${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}/`
  let isComplete = false
  const producing = Promise.all(
    Array.from({ length: 3 }, async (_, producer) => {
      for (let i = producer; i < JOBS; i += 3) await produce(db, root, `job ${i}`)
    }),
  ).finally(() => {
    isComplete = true
  })

  let deaths = 0
  /** @param {string} name */
  const worker = async (name) => {
    for (;;) {
      const wasComplete = isComplete // Before it looks: what comes after an empty look must not be missed.
      try {
        const outcome = await work(db, root, name)
        if (outcome === 'empty' && wasComplete) return
        if (outcome === 'empty') await new Promise((resolve) => setTimeout(resolve, 10))
      } catch (error) {
        if (!(error instanceof WorkerDied)) throw error
        deaths++
      }
    }
  }
  await Promise.all([producing, ...Array.from({ length: WORKERS }, (_, i) => worker(`worker ${i + 1}`))])

  const snapshot = await db.snapshot()
  const done = []
  for await (const { value } of snapshot.scan({ prefix: `${root}done/` })) done.push(value.replace(/ by .*/, ''))
  let counted = 0
  for await (const { key, value } of snapshot.scan({ prefix: `${root}done by ` })) {
    console.log(`  ${key.slice(`${root}done by `.length)}  ${value.padStart(3)}`)
    counted += Number(value)
  }
  const left = await snapshot.count({ prefix: `${root}todo/` })
  console.log(`${JOBS} jobs: ${done.length} done, ${left} left; workers died ${deaths} times on the way`)
  await db.close()
  const wanted = Array.from({ length: JOBS }, (_, i) => `JOB ${i}`)
  const isRight = left === 0 && counted === JOBS && done.sort().join() === wanted.sort().join()
  if (!isRight) throw new Error('a job was lost, or done twice')
}

try {
  await main()
} catch (error) {
  console.error(`queue.mjs: ${error instanceof Error ? error.message : String(error)}`)
  process.exitCode = error instanceof TypeError ? 2 : 1
}
