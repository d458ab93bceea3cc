import { isUtf8 } from 'node:buffer'
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { didYouMean, nameInError } from '../errors/nearest-name.js'
import { type Flags, flagsHelp, integer, readFlags } from '../server/flags.js'
import type { Command } from './command.js'
import { linesOf } from './lines.js'
import { Progress } from './progress.js'
import { isPassing, Refused, type RemoteServer, remoteServer, TRANSFER_FLAGS } from './remote-server.js'

const LOAD_FLAGS = {
  ...TRANSFER_FLAGS,
  concurrency: { value: 'N', help: 'transactions at a time', default: '4' },
  batch: { value: 'N', help: 'lines in a transaction', default: '1000' },
  'skip-lines': { value: 'N', help: 'lines to skip at the beginning, which are loaded already', default: '0' },
} as const satisfies Flags

/** A batch ends with the line that brings it to this many bytes. */
const BATCH_BYTES = 1024 * 1024
const TRIES_MAX = 12
const PAUSE_MS = 50
const PAUSE_MS_MAX = 5000

export const load: Command = {
  flags: LOAD_FLAGS,
  operands: ['FILE'],
  help: `Usage: perkv load [flags] FILE|-

Puts the pairs of FILE, or of stdin: a line of JSON each, {"key", "value"}, where bytes that are not UTF-8 are {"base64"}.
expire_ts is kept; a pair that has expired since is absent. commit_ts and lease_fence are passed over, so the lines of perkv dump will do. Of lines with
the same key the last one counts. Each batch of lines is a transaction; where it stops, it says up to which line all is stored.

Flags:
${flagsHelp(LOAD_FLAGS)}`,

  async run(args, env) {
    const flags = readFlags(LOAD_FLAGS, args, env, this.operands)
    const concurrency = integer(flags.required('concurrency'), 1, 1000)
    const batchLines = integer(flags.required('batch'), 1, 100_000)
    const skipLines = integer(flags.required('skip-lines'), 0, Number.MAX_SAFE_INTEGER)
    const path = flags.positionals[0] as string
    const totalBytes = path === '-' ? undefined : (await stat(path)).size
    const server = await remoteServer(flags, env)
    const progress = new Progress('load', 'line', { isQuiet: flags.isSet('quiet'), totalBytes })
    const loading = new Loading(server, progress, skipLines)
    const source = path === '-' ? process.stdin : createReadStream(path, { highWaterMark: 256 * 1024 })
    const interrupt = (): void => {
      loading.stop(new Error('interrupted'))
      source.destroy()
    }
    process.once('SIGINT', interrupt)
    try {
      await loading.run(linesOf(source), batchLines, concurrency)
      progress.finish()
    } finally {
      process.off('SIGINT', interrupt)
      progress.stop()
      server.close()
    }
  },
}

/** Loading stopped at a line. The message says up to which line everything is stored. */
class LoadError extends Error {
  override readonly name = 'LoadError'
  readonly code = 'load_stopped'
}

type WireBytes = string | { readonly base64: string }

interface WirePair {
  readonly key: WireBytes
  readonly value: WireBytes
  readonly expire_ts?: number
}

interface Batch {
  /** Number of the first line, from 1. */
  readonly from: number
  /** Line number of each op. Empty lines have no op. */
  readonly lines: number[]
  readonly ops: object[]
  readonly keys: Set<string>
  /** Bytes of the lines that became ops. */
  bytes: number
  /** Bytes of all lines since the batch before, including skipped and empty ones. */
  readBytes: number
}

class Loading {
  readonly #inFlight = new Map<Batch, Promise<void>>()
  #failure: unknown
  #failedFrom = Number.POSITIVE_INFINITY
  /** Number of the last line that was read. */
  #line = 0
  /** Whether a note about waiting was printed. No further one is printed until a batch is stored. */
  #isReported = false

  constructor(
    readonly server: RemoteServer,
    readonly progress: Progress,
    readonly skipLines: number,
  ) {}

  stop(reason: unknown): void {
    this.#failure ??= reason
  }

  async run(lines: AsyncIterable<Buffer>, batchLines: number, concurrency: number): Promise<void> {
    let batch = newBatch(this.skipLines + 1)
    try {
      for await (const line of lines) {
        if (this.#failure !== undefined) break
        this.#line++
        batch.readBytes += line.length + 1
        if (this.#line <= this.skipLines) continue
        this.#add(batch, line)
        if (batch.lines.length < batchLines && batch.bytes < BATCH_BYTES) continue
        await this.#dispatch(batch, concurrency)
        batch = newBatch(this.#line + 1)
      }
      if (this.#failure === undefined && batch.lines.length > 0) await this.#dispatch(batch, concurrency)
    } catch (error) {
      this.stop(error)
    }
    if (this.#failure !== undefined) this.#failedFrom = Math.min(this.#failedFrom, batch.from)
    await Promise.all(this.#inFlight.values())
    if (this.#failure === undefined) return
    const stored = this.#failedFrom - 1
    const reason = messageOf(this.#failure)
    const rest = stored > 0 ? `; all up to line ${stored} is stored, go on with --skip-lines ${stored}` : ''
    throw new LoadError(`${reason}${rest}`)
  }

  #add(batch: Batch, line: Buffer): void {
    const pair = pairOf(line)
    if (typeof pair === 'string') throw new LoadError(`line ${this.#line}: ${pair}`)
    if (pair === undefined) return
    batch.lines.push(this.#line)
    batch.ops.push({ op: 'put', ...pair })
    batch.keys.add(keyTextOf(pair.key))
    batch.bytes += line.length
  }

  /** Sends the batch once there is room and no batch in flight writes one of its keys, because the later line must win. */
  async #dispatch(batch: Batch, concurrency: number): Promise<void> {
    const isInTheWay = (): boolean => [...this.#inFlight.keys()].some(({ keys }) => isAnyIn(keys, batch.keys))
    while (this.#inFlight.size >= concurrency || isInTheWay()) await Promise.race(this.#inFlight.values())
    if (this.#failure !== undefined) {
      this.#failedFrom = Math.min(this.#failedFrom, batch.from)
      return
    }
    const sending = this.#send(batch)
      .then(() => {
        this.progress.add(batch.lines.length, batch.readBytes)
        this.#isReported = false
      })
      .catch((error: unknown) => {
        if (batch.from < this.#failedFrom) this.#failure = error
        this.#failedFrom = Math.min(this.#failedFrom, batch.from)
      })
      .finally(() => this.#inFlight.delete(batch))
    this.#inFlight.set(batch, sending)
  }

  /** Repeats the request where needed. That is safe, because later batches with one of these keys wait for this one. */
  async #send(batch: Batch): Promise<void> {
    for (let tries = 1; ; tries++) {
      try {
        await this.server.json('POST', '/v1/txn', { ops: batch.ops })
        return
      } catch (error) {
        if (tries >= TRIES_MAX || !isRetryable(error)) throw located(error, batch)
        if (isPassing(error) && !this.#isReported) {
          this.#isReported = true
          this.progress.note(`${messageOf(error)}; trying again`)
        }
        const waitMs = Math.min(PAUSE_MS_MAX, PAUSE_MS * 2 ** (tries - 1)) * (0.5 + Math.random() / 2)
        await pause(Math.max(waitMs, error instanceof Refused ? error.retryAfterMs : 0))
      }
    }
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

function newBatch(from: number): Batch {
  return { from, lines: [], ops: [], keys: new Set(), bytes: 0, readBytes: 0 }
}

/** Equal for equal keys, whether they are written as text or as base64. */
function keyTextOf(key: WireBytes): string {
  return (typeof key === 'string' ? Buffer.from(key) : Buffer.from(key.base64, 'base64')).toString('latin1')
}

function isAnyIn(all: ReadonlySet<string>, some: ReadonlySet<string>): boolean {
  for (const one of some) if (all.has(one)) return true
  return false
}

/** Also true for lost races. */
function isRetryable(error: unknown): boolean {
  return isPassing(error) || (error instanceof Refused && error.fields['retryable'] === true)
}

/** Adds the line number to a refusal that names an op. */
function located(error: unknown, { lines }: Batch): unknown {
  if (!(error instanceof Refused)) return error
  const op = /^ops\[(\d+)\]/.exec(String(error.fields['field']))?.[1]
  const line = op === undefined ? undefined : lines[Number(op)]
  const where = line === undefined ? `lines ${lines[0]} to ${lines.at(-1)}` : `line ${line}`
  return new LoadError(`${where}: ${error.message}`)
}

/** @returns undefined for an empty line; a text that describes the fault of the line. */
function pairOf(line: Buffer): WirePair | undefined | string {
  if (!isUtf8(line)) return 'is not UTF-8'
  const text = line.toString('utf8')
  if (text.trim() === '') return undefined
  let pair: unknown
  try {
    pair = JSON.parse(text)
  } catch {
    return 'is not JSON'
  }
  if (typeof pair !== 'object' || pair === null || Array.isArray(pair)) return 'is no JSON object'
  const { key, value, commit_ts: _, lease_fence: __, expire_ts, ...rest } = pair as Record<string, unknown>
  const [unknown] = Object.keys(rest)
  if (unknown !== undefined)
    return `has an unknown field ${JSON.stringify(nameInError(unknown))}${didYouMean(unknown, ['key', 'value', 'expire_ts'])}`
  if (!isBytes(key) || key === '') return 'needs a key: text, or {"base64"}'
  if (!isBytes(value)) return 'needs a value: text, or {"base64"}'
  if (expire_ts === undefined) return { key, value }
  return Number.isSafeInteger(expire_ts) && Number(expire_ts) > 0
    ? { key, value, expire_ts: Number(expire_ts) }
    : 'has an expire_ts that is no timestamp'
}

function isBytes(value: unknown): value is WireBytes {
  if (typeof value === 'string') return true
  if (typeof value !== 'object' || value === null) return false
  return Object.keys(value).length === 1 && 'base64' in value && typeof value.base64 === 'string'
}
