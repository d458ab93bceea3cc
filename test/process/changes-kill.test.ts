import { afterAll, expect, test } from 'vitest'
import { connect, type Db } from '../../src/client/index.js'
import { Random } from '../anomalies/random.js'
import { report, settings } from '../anomalies/settings.js'
import { MortalServer } from './mortal-server.js'
import { killAll, withTempDir } from './server-process.js'

/** `npm run test:kill` is the long form. Transactions that are begun between two kills. */
const { seed, txns, kills } = settings({ seed: 1, txns: 40, kills: 2 })
const WRITERS = 6
const KEYS = 40
const PREFIX = 'fed/'
/** Now and then a copy is held against a scan at its timestamp. */
const CHECKED = 0.05

afterAll(killAll)

interface Change {
  readonly key: string
  readonly op: 'put' | 'delete'
  readonly value?: string
}
interface Txn {
  readonly commit_ts: number
  readonly start_ts: number
  readonly changes: readonly Change[]
}
interface Page {
  readonly txns: readonly Txn[]
  readonly next_ts: number
}
type Line =
  | ({ readonly type: 'txn' } & Txn)
  | { readonly type: 'resolved'; readonly resolved_ts: number }
  | { readonly type: 'pair'; readonly key: string; readonly value: string; readonly commit_ts: number }
  | { readonly type: 'snapshot_end'; readonly ts: number }
  | { readonly type: 'error'; readonly code: string }

/** A copy of all keys by HTTP, which outlives its connections. */
class Copy {
  readonly pairs = new Map<string, string>()
  /** Everything at or below it is in the copy. */
  position = 0
  /** Nothing is written above it. */
  end = Number.POSITIVE_INFINITY
  /** commit_ts and start_ts of each transaction, once. */
  readonly txns = new Map<string, string>()
  #last: Txn | undefined
  counts = { txns: 0, connections: 0, checked: 0 }

  constructor(
    readonly name: string,
    readonly url: string,
    readonly random: Random,
  ) {}

  apply(txn: Txn): void {
    const { commit_ts, start_ts, changes } = txn
    expect(commit_ts, `${this.name} is told of a change at or below ${this.position}`).toBeGreaterThan(this.position)
    const { commit_ts: before, start_ts: startBefore } = this.#last ?? { commit_ts: 0, start_ts: 0 }
    expect(commit_ts > before || (commit_ts === before && start_ts > startBefore), `${this.name}: order`).toBe(true)
    this.#last = txn
    this.counts.txns++
    this.txns.set(`${commit_ts} ${start_ts}`, JSON.stringify(changes))
    for (const { key, op, value } of changes) {
      if (op === 'put') this.pairs.set(key, value as string)
      else this.pairs.delete(key)
    }
  }

  /** @param ts up to which all that was told of is applied. */
  async moved(ts: number): Promise<void> {
    expect(ts).toBeGreaterThanOrEqual(this.position)
    this.position = ts
    this.#last = undefined
    if (this.random.chance(CHECKED)) await this.check()
  }

  /** The copy is a scan at its position. */
  async check(): Promise<void> {
    const response = await fetch(`${this.url}/v1/kv?prefix=${PREFIX}&ts=${this.position}&limit=10000`)
    if (response.status !== 200) throw new Error(await response.text())
    const { pairs } = (await response.json()) as { pairs: { key: string; value: string }[] }
    expect([...this.pairs].sort(), `${this.name} at ${this.position}`).toEqual(
      pairs.map(({ key, value }) => [key, value]).sort(),
    )
    this.counts.checked++
  }
}

/** By pages of JSON. */
async function readPages(copy: Copy): Promise<void> {
  const limit = copy.random.pick([1, 5, 100])
  const query = `prefix=${PREFIX}&since_ts=${copy.position}&limit=${limit}&wait_ms=200`
  const response = await fetch(`${copy.url}/v1/changes?${query}`)
  if (response.status !== 200) throw new Error(await response.text())
  const { txns, next_ts } = (await response.json()) as Page
  for (const txn of txns) copy.apply(txn)
  await copy.moved(next_ts)
}

/** By a stream of lines, which is left now and then. */
async function readLines(copy: Copy): Promise<void> {
  copy.counts.connections++
  const begin = copy.position === 0 ? 'snapshot=true' : `since_ts=${copy.position}`
  const query = `prefix=${PREFIX}&${begin}&heartbeat_ms=100`
  const headers = { accept: 'application/x-ndjson' }
  const response = await fetch(`${copy.url}/v1/changes?${query}`, { headers })
  if (response.status !== 200 || response.body === null) throw new Error(await response.text())
  let left = 20 + copy.random.below(400)
  /** Of one commit_ts there may be several: they are applied when all have come. */
  let pending: Txn[] = []
  const pairs = new Map<string, string>()
  for await (const line of linesOf(response.body)) {
    if (line.type === 'pair') pairs.set(line.key, line.value)
    else if (line.type === 'snapshot_end') {
      for (const [key, value] of pairs) copy.pairs.set(key, value)
      await copy.moved(line.ts)
    } else if (line.type === 'txn') pending.push(line)
    else if (line.type === 'resolved') {
      for (const txn of pending) copy.apply(txn)
      pending = []
      await copy.moved(line.resolved_ts)
      if (left <= 0 || copy.position >= copy.end) return
    } else throw new Error(`the stream ends with ${line.code}`)
    left--
  }
}

/** Leaving the loop closes the connection. */
async function* linesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Line, void> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const chunk of body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n')
    rest = lines.pop() as string
    for (const line of lines) yield JSON.parse(line) as Line
  }
}

/** Transactions of one key and of several, in one phase and in two; whatever becomes of them. */
async function write(db: Db, random: Random, value: string): Promise<void> {
  const keys = random
    .shuffled(Array.from({ length: KEYS }, (_, i) => `${PREFIX}${i}`))
    .slice(0, random.pick([1, 1, 2, 5]))
  const dice = random.below(10)
  if (dice < 4) await db.put(keys[0] as string, value)
  else if (dice < 5) await db.delete(keys[0] as string)
  else
    await db.transaction(async (txn) => {
      for (const key of keys) {
        if (random.chance(0.2)) await txn.delete(key)
        else await txn.put(key, `${value} ${key}`)
      }
    })
}

test('kill -9 of the server while writers and readers of its changes run: each copy is a scan, at each moment and at the end', () =>
  withTempDir(async (data) => {
    const random = new Random(seed)
    const server = await MortalServer.start(data)
    const db = connect(server.url, { lockWaitMs: 1000 })
    const counts = { written: 0, lost: 0, cut: 0 }
    let isEnding = false
    let killsLeft = kills
    let untilKill = txns
    let killing: Promise<void> | undefined
    let onDone: () => void = () => {}
    const done = new Promise<void>((resolve) => {
      onDone = resolve
    })
    const onStep = (): void => {
      if (--untilKill > 0 || killing !== undefined) return
      if (killsLeft === 0) {
        onDone()
        return
      }
      killsLeft--
      killing = server.restart().then(() => {
        untilKill = 1 + random.below(2 * txns)
        killing = undefined
      })
      killing.catch(() => {}) // Awaited below.
    }
    const writing = Array.from({ length: WRITERS }, async (_, writer) => {
      const choices = random.fork()
      for (let i = 0; !isEnding; i++, onStep()) {
        try {
          await write(db, choices, `${writer}.${i}`)
          counts.written++
        } catch {
          counts.lost++
          await server.isUp()
        }
      }
    })
    const copies = [
      { copy: new Copy('pages', server.url, random.fork()), read: readPages },
      { copy: new Copy('lines', server.url, random.fork()), read: readLines },
      { copy: new Copy('more lines', server.url, random.fork()), read: readLines },
    ]
    const reading = copies.map(async ({ copy, read }) => {
      while (copy.position < copy.end) {
        try {
          await read(copy)
        } catch (error) {
          // The connection was cut. Anything else is a contradiction.
          if (!(error instanceof TypeError)) throw error
          counts.cut++
          await server.isUp()
        }
      }
    })
    const failed = Promise.all(reading)
    failed.catch(() => {})
    await Promise.race([done, failed])
    await killing
    isEnding = true
    await Promise.all(writing)
    const end = await putLast(server.url)
    for (const { copy } of copies) copy.end = end
    await Promise.all(reading)
    const [pages, lines, more] = copies.map(({ copy }) => copy) as [Copy, Copy, Copy]
    for (const copy of [pages, lines, more]) await copy.check()
    // What began by a snapshot was told of no other transaction than what began at the first one, and of none otherwise.
    for (const copy of [lines, more])
      for (const [name, changes] of copy.txns) expect([name, pages.txns.get(name)]).toEqual([name, changes])
    report({ test: 'changes-kill', seed, kills: server.lives - 1, ...counts, pages: pages.counts, lines: lines.counts })
    expect(server.lives).toBe(kills + 1)
    expect(Math.min(counts.written, pages.counts.txns, lines.counts.txns)).toBeGreaterThan(0)
    await server.end()
  }))

async function putLast(url: string): Promise<number> {
  const response = await fetch(`${url}/v1/kv/${encodeURIComponent(`${PREFIX}last`)}`, { method: 'PUT', body: 'one' })
  const { commit_ts } = (await response.json()) as { commit_ts: number }
  return commit_ts
}
