import { createReadStream } from 'node:fs'
import { decodeBackup } from '../backup/backup-decoder.js'
import { BackupEncoder } from '../backup/backup-encoder.js'
import { BackupError, type BackupHeader } from '../backup/backup-format.js'
import { SortedRuns } from '../backup/sorted-runs.js'
import { decodeMessage, MSGPACK } from '../client/http/http-message.js'
import type { Timestamp } from '../timestamp.js'
import type { Output } from './output.js'
import type { Progress } from './progress.js'
import { BREAKS_MAX, isPassing, pauseAfterBreak, Refused, type RemoteServer, unexpected } from './remote-server.js'

/** Bytes of changes in memory. More go to files. */
const RUN_BYTES = 64 * 1024 * 1024
/** Each entry of a restore is compared with all of them. */
const REMOVED_MAX = 100
/** Pause of a page while locks hold the changes back. */
const WAIT_MS = 250
/** Locks may hold the changes back for this long in total. */
const HELD_MS_MAX = 10 * 60_000

const NO_BYTES = new Uint8Array()

/** Problems are sent as JSON then. */
const ACCEPT = `${MSGPACK}, application/json;q=0.5`

interface Page {
  readonly txns: readonly PageTxn[]
  readonly resolvedTs: Timestamp
  readonly nextTs: Timestamp
}

interface PageTxn {
  readonly commitTs: Timestamp
  readonly changes: readonly PageChange[]
}

interface PageChange {
  readonly op: 'put' | 'delete' | 'delete_range' | 'expire'
  readonly key: Uint8Array
  readonly value?: Uint8Array
  readonly expireTs?: Timestamp
  readonly end?: Uint8Array
}

export interface IncrementOrder {
  readonly base: BackupHeader
  /** Consumer that keeps the changes for the next increment from collection. */
  readonly consumer: string | undefined
  /** For changes that do not fit in memory. */
  readonly directory: string
}

export async function headerOf(path: string): Promise<BackupHeader> {
  try {
    return await headerIn(createReadStream(path))
  } catch (error) {
    throw inFile(path, error)
  }
}

async function headerIn(source: AsyncIterable<Uint8Array>): Promise<BackupHeader> {
  for await (const block of decodeBackup(source)) if (block.type === 'header') return block.header
  throw new BackupError('cut_off', 'the backup has no header')
}

export function inFile(path: string, error: unknown): unknown {
  return error instanceof BackupError ? new BackupError(error.reason, `${path}: ${error.message}`) : error
}

/** Writes the changes since `base`: every version of each changed key. */
export async function writeIncrement(
  server: RemoteServer,
  output: Output,
  progress: Progress,
  order: IncrementOrder,
): Promise<void> {
  const { base, consumer } = order
  const now = await headerNow(server)
  if (base.store === undefined || base.store !== now.store)
    throw new BackupError(
      'unsupported',
      base.store === undefined
        ? 'the base is of a version that wrote no increments: make a full backup first'
        : 'the base is of another server, or of one that was restored since: make a full backup first',
    )
  if (now.ts < base.ts)
    throw new BackupError(
      'unsupported',
      `a transaction that began before ts ${base.ts}, of the base, holds locks: see perkv locks, and try again when it is over`,
    )
  const runs = new SortedRuns(order.directory, RUN_BYTES)
  try {
    await collect(server, runs, progress, { ...order, upTo: now.ts })
    await requireWhole(server, progress, order, now.ts)
    progress.share = undefined
    const { removed } = runs
    const encoder = new BackupEncoder()
    await output.write(encoder.begin({ ...now, base: { id: base.id, ts: base.ts }, removed }))
    for await (const entry of runs.entries()) {
      const block = encoder.add(entry)
      if (block !== undefined) await output.write(block)
    }
    await output.write(encoder.end())
    await output.finish()
    progress.items = encoder.sums.pairs
    progress.bytes = encoder.sums.bytes
  } finally {
    await runs.close()
  }
  if (consumer !== undefined) await server.json('POST', `${consumerPath(consumer)}/ack`, { ts: now.ts })
  progress.finish(`, ts ${base.ts} to ${now.ts}`)
}

/** Await before the snapshot: on a shared store the first consumer ever begins the feed, and a reset goes back to that at most. */
export async function register(server: RemoteServer, consumer: string): Promise<void> {
  await server.json('PUT', consumerPath(consumer), {})
}

/** Keeps all changes above `ts` from collection on the server, for the next increment. */
export async function holdFrom(server: RemoteServer, consumer: string, ts: Timestamp): Promise<void> {
  await server.json('POST', `${consumerPath(consumer)}/reset`, { since_ts: ts })
}

function consumerPath(name: string): string {
  return `/v1/consumers/${encodeURIComponent(name)}`
}

/** The header of a full backup taken now. */
async function headerNow(server: RemoteServer): Promise<BackupHeader> {
  const abort = new AbortController()
  const response = await server.send('GET', '/v1/admin/backup', { signal: abort.signal })
  try {
    return await headerIn(server.bodyOf(response))
  } finally {
    response.on('error', () => {}) // The rest of the answer is not needed.
    abort.abort()
  }
}

async function collect(
  server: RemoteServer,
  runs: SortedRuns,
  progress: Progress,
  order: IncrementOrder & { readonly upTo: Timestamp },
): Promise<void> {
  for await (const { commitTs, changes } of txnsBetween(server, progress, order, order.base.ts, order.upTo)) {
    for (const change of changes) {
      await addTo(runs, change, commitTs)
      progress.add(1, change.key.length + (change.value?.length ?? 0))
    }
    if (runs.removed.length > REMOVED_MAX)
      throw new BackupError(
        'unsupported',
        `over ${REMOVED_MAX} calls of delete_range since the base: make a full backup`,
      )
  }
}

/** Call after the changes up to `upTo` were read: a delete_range above it may have taken some of them before that. */
async function requireWhole(
  server: RemoteServer,
  progress: Progress,
  order: IncrementOrder,
  upTo: Timestamp,
): Promise<void> {
  const { ts } = await headerNow(server)
  for await (const { changes } of txnsBetween(server, progress, order, upTo, ts))
    if (changes.some(({ op }) => op === 'delete_range'))
      throw new BackupError('unsupported', 'a delete_range came in between: repeat the command')
}

async function* txnsBetween(
  server: RemoteServer,
  progress: Progress,
  { base, consumer }: IncrementOrder,
  from: Timestamp,
  upTo: Timestamp,
): AsyncGenerator<PageTxn, void, undefined> {
  const path = consumer === undefined ? '/v1/changes' : `${consumerPath(consumer)}/changes`
  let since = from
  let waitMs = 0
  let movedMs = performance.now()
  for (let breaks = 0; since < upTo; ) {
    let page: Page
    try {
      page = await pageOf(server, `${path}?since_ts=${since}&limit=1000&wait_ms=${waitMs}`)
      breaks = 0
    } catch (error) {
      if (error instanceof Refused && error.code === 'ts_below_safe_point') throw isGone(base.ts, consumer)
      if (!isPassing(error) || breaks >= BREAKS_MAX) throw error
      progress.note(`${(error as Error).message}; trying again`)
      await pauseAfterBreak(breaks++)
      continue
    }
    for (const txn of page.txns) {
      if (txn.commitTs > upTo) break
      yield txn
    }
    waitMs = page.txns.length > 0 ? 0 : WAIT_MS
    if (page.nextTs > since) movedMs = performance.now()
    else if (performance.now() - movedMs > HELD_MS_MAX)
      throw new BackupError(
        'unsupported',
        'a transaction that does not end holds the changes back: see feed.held_back_by of /v1/status',
      )
    since = page.nextTs
    progress.share = (since - base.ts) / (upTo - base.ts)
  }
}

async function addTo(
  runs: SortedRuns,
  { op, key, value = NO_BYTES, expireTs, end = NO_BYTES }: PageChange,
  commitTs: Timestamp,
): Promise<void> {
  if (op === 'delete_range') runs.removed.push({ start: key, end, ts: commitTs })
  else if (op === 'put') await runs.add({ key, value, commitTs, expireTs })
  else if (op === 'delete') await runs.add({ key, commitTs }) // An expiry is known from its put.
}

async function pageOf(server: RemoteServer, path: string): Promise<Page> {
  const response = await server.send('GET', path, { headers: { accept: ACCEPT } })
  const chunks: Uint8Array[] = []
  for await (const chunk of server.bodyOf(response)) chunks.push(chunk)
  const page = decoded(Buffer.concat(chunks))
  if (!Array.isArray(page?.txns) || !Number.isSafeInteger(page.nextTs)) throw unexpected(response.statusCode ?? 0)
  return page as Page
}

function decoded(bytes: Uint8Array): Partial<Page> | undefined {
  try {
    return decodeMessage(bytes, MSGPACK) as Partial<Page> | undefined
  } catch {
    return undefined
  }
}

function isGone(ts: Timestamp, consumer: string | undefined): BackupError {
  const hint = consumer === undefined ? ', and give --consumer to keep them' : ''
  return new BackupError('unsupported', `the server has collected changes since ts ${ts}: make a full backup${hint}`)
}
