import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, expect, test } from 'vitest'
import { CHROMIUM, CHROMIUM_FLAGS, hasChromium } from './chromium.js'
import { killAll, startProcess, withTempDir } from './server-process.js'

const isThere = hasChromium('EventSource')
/** Before `snapshot_end`, in the midst, and in the midst again: bytes of the connection after which it is cut. */
const CUTS = [700, 3000, 1500]
const BEFORE = 20
const AFTER = 60

let browser: ChildProcess | undefined
afterAll(() => {
  browser?.kill('SIGKILL')
  killAll()
})

/** Keeps a copy by an EventSource alone, and says what it is once the last key has come. */
const PAGE = `<!doctype html><title>copy</title><script>
const copy = {}
const seen = []
let ids = []
const source = new EventSource('/v1/changes?prefix=a/&snapshot=true&heartbeat_ms=100')
source.addEventListener('pair', ({ data, lastEventId }) => {
  const { key, value } = JSON.parse(data)
  copy[key] = value
  ids.push(lastEventId)
})
source.addEventListener('txn', ({ data }) => {
  const { commit_ts, changes } = JSON.parse(data)
  seen.push(commit_ts)
  for (const { key, op, value } of changes) if (op === 'put') copy[key] = value; else delete copy[key]
  if ('a/last' in copy) {
    source.close()
    fetch('/report', { method: 'POST', body: JSON.stringify({ copy, seen, ids }) })
  }
})
</script>`

interface Reported {
  readonly copy: Record<string, string>
  /** commit_ts of each event `txn`. */
  readonly seen: readonly number[]
  /** Of pairs. */
  readonly ids: readonly string[]
}

/** The page, and the server behind it by connections that are cut. */
function serve(url: string, onReport: (reported: Reported) => void, resumed: (string | undefined)[]): Promise<Server> {
  const cuts = [...CUTS]
  const server = createServer((incoming, answer) => {
    if (incoming.url === '/report') {
      void text(incoming).then((body) => onReport(JSON.parse(body) as Reported))
      answer.end()
      return
    }
    if (incoming.url?.startsWith('/v1/') !== true) {
      answer.setHeader('content-type', 'text/html').end(PAGE)
      return
    }
    resumed.push(incoming.headers['last-event-id'] as string | undefined)
    let left = cuts.shift() ?? Number.POSITIVE_INFINITY
    const behind = request(url + incoming.url, { headers: incoming.headers, agent: false }, (response) => {
      answer.writeHead(response.statusCode ?? 500, response.headers)
      response.on('data', (chunk: Buffer) => {
        answer.write(chunk.subarray(0, Math.max(0, left)))
        left -= chunk.length
        if (left <= 0) setImmediate(() => answer.destroy())
      })
      response.on('error', () => answer.destroy())
    })
    behind.on('error', () => answer.destroy())
    answer.on('close', () => behind.destroy())
    behind.end()
  })
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)))
}

test.skipIf(!isThere)('an EventSource of Chromium keeps a copy, over connections that are cut', () =>
  withTempDir(async (data) => {
    const perkv = await startProcess(data)
    const put = async (key: string, value: string): Promise<void> => {
      const response = await fetch(`${perkv.url}/v1/kv/${encodeURIComponent(key)}`, { method: 'PUT', body: value })
      expect(response.status).toBeLessThan(300)
      await response.text()
    }
    const expected: Record<string, string> = {}
    const write = async (from: number, to: number): Promise<void> => {
      for (let i = from; i < to; i++) {
        const [key, value] = [`a/${i % 17}`, `value ${i}`]
        await put(key, value)
        expected[key] = value
      }
    }
    await write(0, BEFORE)
    const resumed: (string | undefined)[] = []
    let onReport: (reported: Reported) => void = () => {}
    const reported = new Promise<Reported>((resolve) => {
      onReport = resolve
    })
    const front = await serve(perkv.url, (each) => onReport(each), resumed)
    const profile = await mkdtemp(join(tmpdir(), 'perkv-chromium-'))
    const page = `http://127.0.0.1:${(front.address() as AddressInfo).port}/`
    browser = spawn(
      CHROMIUM,
      ['--headless', ...CHROMIUM_FLAGS, `--user-data-dir=${profile}`, '--remote-debugging-port=0', page],
      {
        stdio: 'ignore',
      },
    )
    const ended = new Promise((resolve) => browser?.once('exit', resolve))
    try {
      for (let i = BEFORE; resumed.length <= CUTS.length || i < BEFORE + AFTER; i++) await write(i, i + 1)
      await put('a/last', 'one')
      expected['a/last'] = 'one'
      const { copy, seen, ids } = await reported
      expect(copy).toEqual(expected)
      expect(seen).toEqual([...new Set(seen)].sort((a, b) => a - b))
      expect(resumed.length).toBeGreaterThan(CUTS.length)
      expect(resumed[0]).toBeUndefined()
      expect(ids.every((id) => id.startsWith('s.'))).toBe(true)
      expect(resumed.slice(1)).not.toContain(undefined)
    } finally {
      browser.kill('SIGKILL')
      await ended
      front.closeAllConnections()
      front.close()
      await rm(profile, { recursive: true, force: true, maxRetries: 5 })
      await perkv.stop('SIGKILL')
    }
  }),
)
