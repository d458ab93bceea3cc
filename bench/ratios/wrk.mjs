// The same load by wrk, where it is installed: it takes less of the processor than autocannon, so that what it finds
// differs more from server to server.
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { valueAt } from './payload.mjs'

const run = promisify(execFile)

/** Lua that makes the requests; `run` is another number in every run. */
export const scripts = {
  getHot: (path) => () => `wrk.path = "${path}"`,
  getUniform: (keys) => (run) =>
    `
    math.randomseed(os.time() + ${run})
    request = function() return wrk.format("GET", string.format("/v1/kv/key%010d", math.random(0, ${keys - 1}))) end`,
  put: (run) =>
    `
    local n = 0
    local headers = { ["Content-Type"] = "application/octet-stream" }
    request = function()
      n = n + 1
      return wrk.format("PUT", "/v1/kv/wrk${run}-" .. n, headers, "${valueAt(0)}")
    end`,
}

let runs = 0

/** @throws when any request fails. */
export async function wrk({ url, connections, seconds, script, directory }) {
  const path = join(directory, `${runs}.lua`)
  await writeFile(path, script(runs++))
  const args = ['-t1', `-c${connections}`, `-d${Math.ceil(seconds)}s`, '--latency', '-s', path, url]
  const { stdout } = await run('wrk', args)
  if (/Non-2xx|Socket errors/.test(stdout)) throw new Error(`requests of wrk failed:\n${stdout}`)
  return { rate: Number(/Requests\/sec: +([\d.]+)/.exec(stdout)[1]), p99: milliseconds(/99% +(\S+)/.exec(stdout)[1]) }
}

function milliseconds(text) {
  const factor = text.endsWith('us') ? 1e-3 : text.endsWith('ms') ? 1 : 1e3
  return Number.parseFloat(text) * factor
}
