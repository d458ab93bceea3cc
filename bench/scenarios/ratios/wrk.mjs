// Operations that are one request, by wrk: it takes a fraction of the processor that a generator in Node does, so that more of it is
// left for the server, and the rates of servers differ as much as their work.
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { luaOf } from './template.mjs'

const execute = promisify(execFile)

let runs = 0

/**
 * @param operation.template see `template.mjs`; wrk does not look into answers.
 * @param directory for the script.
 * @returns requests per second, how many were answered, and the latency in ms that 99 % of them kept.
 * @throws when any request fails.
 */
export async function wrk({ url, connections, seconds, operation, directory }) {
  const run = runs++
  const script = join(directory, `${run}.lua`)
  await writeFile(script, luaOf(operation, run))
  const args = ['-t1', `-c${connections}`, `-d${Math.ceil(seconds)}s`, '--latency', '-s', script, url]
  const { stdout } = await execute('wrk', args)
  if (/Non-2xx|Socket errors/.test(stdout)) throw new Error(`requests of wrk failed:\n${stdout}`)
  return {
    rate: Number(/Requests\/sec: +([\d.]+)/.exec(stdout)[1]),
    count: Number(/(\d+) requests in/.exec(stdout)[1]),
    p99: milliseconds(/99% +(\S+)/.exec(stdout)[1]),
  }
}

function milliseconds(text) {
  const factor = text.endsWith('us') ? 1e-3 : text.endsWith('ms') ? 1 : 1e3
  return Number.parseFloat(text) * factor
}
