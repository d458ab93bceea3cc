import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { ENV, killAll, startProcess, withTempDir } from './server-process.js'

afterAll(killAll)

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const run = promisify(execFile)

/** Prints how many of its hits have passed. */
const PROGRAM = `
import { connect } from 'perkv/client'
import { flexibleRateLimiter } from 'perkv/rate-limit'
import * as flexible from 'rate-limiter-flexible'

const db = connect(process.argv[1])
const limiter = flexibleRateLimiter(flexible, { storeClient: db, points: 15, duration: 600 })
const hits = await Promise.allSettled(Array.from({ length: 20 }, () => limiter.consume('ann')))
console.log(hits.filter(({ status }) => status === 'fulfilled').length)
await db.close()
`

test('of the hits of two programs as many pass as may', () =>
  withTempDir(async (directory) => {
    const server = await startProcess(join(directory, 'data'))
    const hits = () =>
      run(process.execPath, ['--input-type=module', '--eval', PROGRAM, server.url], { cwd: ROOT, env: ENV })
    const [first, second] = await Promise.all([hits(), hits()])
    expect(Number(first.stdout) + Number(second.stdout)).toBe(15)
    expect(await server.stop('SIGTERM')).toEqual({ code: 0, signal: null })
  }))
