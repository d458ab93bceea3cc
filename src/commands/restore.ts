import { createHash } from 'node:crypto'
import { createReadStream, type ReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { decodeBackup } from '../backup/backup-decoder.js'
import { BackupEncoder } from '../backup/backup-encoder.js'
import { BackupError, type BackupHeader, type BackupTotals } from '../backup/backup-format.js'
import { mergedEntries } from '../backup/merged-entries.js'
import { entriesOf } from '../backup/sorted-runs.js'
import { hasExpired } from '../percolator/write.js'
import { type Flags, flagsHelp, readFlags, UsageError } from '../server/flags.js'
import { LOGICAL_PER_MS, physicalMs, type Timestamp, timestampFromMs } from '../timestamp.js'
import { instantOf } from './client/arguments.js'
import type { Command } from './command.js'
import { inFile } from './increment.js'
import { Progress } from './progress.js'
import { BREAKS_MAX, isPassing, pauseAfterBreak, remoteServer, TRANSFER_FLAGS } from './remote-server.js'

const RESTORE_FLAGS = {
  ...TRANSFER_FLAGS,
  at: { value: 'TIME', help: 'the state of that moment, such as 2026-01-31T12:00:00Z, which the increments cover' },
  restart: { help: 'first removes the pairs of a restore that was not completed' },
} as const satisfies Flags

export const restore: Command = {
  flags: RESTORE_FLAGS,
  operands: ['FILE', '[INCREMENT...]'],
  help: `Usage: perkv restore [flags] FILE|- [INCREMENT...]

Fills an empty server with the backup in FILE, or from stdin. The whole of FILE is verified before anything is sent. A
restore that was broken off is continued by the same command again; until it is complete the server serves nothing else.
Increments follow in the order in which they were made; the server gets the state as of the last one, or of --at.

Flags:
${flagsHelp(RESTORE_FLAGS)}`,

  async run(args, env) {
    const flags = readFlags(RESTORE_FLAGS, args, env, this.operands)
    const [path = '', ...increments] = flags.positionals
    if (increments.length > 0 && flags.positionals.includes('-'))
      throw new UsageError('increments are read with their base from files, not from stdin')
    const instant = flags.optional('at')
    if (instant !== undefined && path === '-') throw new UsageError('--at needs files, not stdin')
    const atMs = instant && instantOf(instant).getTime()
    let totalBytes: number | undefined
    if (path !== '-') for (const file of flags.positionals) totalBytes = (totalBytes ?? 0) + (await stat(file)).size
    const server = await remoteServer(flags, env)
    const isQuiet = flags.isSet('quiet')
    const chain = path === '-' ? undefined : await verifyChain(flags.positionals, isQuiet)
    const merged = increments.length > 0 || atMs !== undefined ? stateAt(chain ?? [], atMs) : undefined
    // Of a chain that is merged, nobody knows the size before.
    const progress = new Progress('restore', 'key', {
      isQuiet,
      totalBytes: merged === undefined ? totalBytes : undefined,
    })
    progress.items = undefined // Bytes are counted here, not items.
    try {
      for (let breaks = 0; ; breaks++) {
        progress.bytes = 0
        const source = merged !== undefined ? joined(merged) : path === '-' ? process.stdin : reading(path)
        const restart = flags.isSet('restart') && breaks === 0 ? '?restart=true' : ''
        try {
          const body = Readable.from(counted(source, progress))
          const headers = { 'content-type': 'application/octet-stream' }
          await server.drain(await server.send('POST', `/v1/admin/restore${restart}`, { headers, body }))
          break
        } catch (error) {
          if (chain === undefined || !isPassing(error) || breaks >= BREAKS_MAX) throw error
          progress.note(`${(error as Error).message}; trying again`)
          await pauseAfterBreak(breaks)
        }
      }
      if (merged === undefined) progress.items = chain?.[0]?.totals.pairs
      progress.finish(merged && `, as of ${isoTime(merged.header.ts)}`)
    } finally {
      progress.stop()
      server.close()
    }
  },
}

interface Verified {
  readonly path: string
  readonly header: BackupHeader
  readonly totals: BackupTotals
  /** False for an increment of an older version, which has the newest version of each key only. */
  readonly hasVersions: boolean
}

/** The full backup that a chain stands for. */
interface Merged {
  readonly header: BackupHeader
  readonly chain: readonly Verified[]
}

/** @throws BackupError for a damaged file, and for one that does not continue the one before it. */
async function verifyChain(paths: readonly string[], isQuiet: boolean): Promise<Verified[]> {
  const chain: Verified[] = []
  for (const path of paths) {
    const verified = await verify(path, isQuiet)
    const { base } = verified.header
    const before = chain.at(-1)
    if (before === undefined && base !== undefined)
      throw new BackupError(
        'unsupported',
        `${path}: this is an increment: the full backup that it goes back to must come first`,
      )
    if (before !== undefined && base === undefined)
      throw new BackupError('unsupported', `${path}: this is a full backup: it needs none before it`)
    if (before !== undefined && (base?.id !== before.header.id || base.ts !== before.header.ts))
      throw new BackupError(
        'unsupported',
        `${path}: this increment goes on from a backup of ts ${base?.ts}, and the one before it is of ts ${before.header.ts}`,
      )
    chain.push(verified)
  }
  return chain
}

async function verify(path: string, isQuiet: boolean): Promise<Verified> {
  const progress = new Progress('restore: verifying', 'key', { isQuiet, totalBytes: (await stat(path)).size })
  let header: BackupHeader | undefined
  let hasVersions = false
  try {
    for await (const block of decodeBackup(counted(reading(path), progress))) {
      if (block.type === 'header') ({ header, isCurrent: hasVersions } = block)
      if (block.type === 'header' && block.header.start !== undefined)
        throw new BackupError('unsupported', 'this file continues another backup, and cannot be restored by itself')
      if (block.type === 'data') progress.add(block.pairs.length, 0)
      if (block.type === 'end' && header !== undefined) return { path, header, totals: block.totals, hasVersions }
    }
    throw new BackupError('cut_off', 'the backup has no end')
  } catch (error) {
    throw inFile(path, error)
  } finally {
    progress.stop()
  }
}

/** @throws BackupError when the chain does not have that moment. */
function stateAt(chain: readonly Verified[], atMs: number | undefined): Merged {
  const at = atMs === undefined ? undefined : endOf(atMs, chain)
  const reached = chain.findIndex(({ header }) => header.ts >= (at ?? Number.POSITIVE_INFINITY))
  const used = reached < 0 ? chain : chain.slice(0, reached + 1)
  const last = used.at(-1)
  if (last === undefined) throw new BackupError('unsupported', 'there is no backup')
  const { id, ts, perkv, store, removed = [] } = last.header
  if (at === undefined || at === ts) return { header: { id, ts, perkv, store }, chain: used }
  const first = used[0]?.header.ts ?? ts
  if (reached <= 0)
    throw new BackupError(
      'unsupported',
      `these backups go from ${isoTime(first)} to ${isoTime(ts)}: --at is not within`,
    )
  if (!last.hasVersions)
    throw new BackupError(
      'unsupported',
      `${last.path}: an older version of PerKV has made it, without the versions between: only its end, ${isoTime(ts)}, can be restored`,
    )
  const later = removed.find((range) => range.ts > at)
  if (later !== undefined)
    throw new BackupError(
      'unsupported',
      `a delete_range at ${isoTime(later.ts)} took versions that the state of that moment needs: ask for one from then on, or for the end of the backup before`,
    )
  return { header: { id: idOf(id, at), ts: at, perkv, store }, chain: used }
}

/** The last timestamp of a millisecond; where a backup ended in it, that end, because messages name ends in milliseconds. */
function endOf(ms: number, chain: readonly Verified[]): Timestamp {
  const ended = chain.find(({ header }) => physicalMs(header.ts) === ms)
  return ended?.header.ts ?? timestampFromMs(ms) + LOGICAL_PER_MS - 1
}

/** The same for the same moment, so that a restore that was broken off can go on. */
function idOf(id: string, at: Timestamp): string {
  return createHash('sha256').update(`${id} ${at}`).digest('hex').slice(0, id.length)
}

function isoTime(ts: Timestamp): string {
  return new Date(physicalMs(ts)).toISOString()
}

async function* joined({ header, chain }: Merged): AsyncGenerator<Buffer, void, undefined> {
  const { ts } = header
  const parts = chain.map(({ path, header }) => ({ entries: entriesOf(path), removed: header.removed ?? [] }))
  const encoder = new BackupEncoder()
  yield encoder.begin(header)
  for await (const entry of mergedEntries(parts, ts)) {
    const isGone = entry.value === undefined || hasExpired(entry.expireTs ?? 0, ts)
    const block = isGone ? undefined : encoder.add(entry)
    if (block !== undefined) yield block
  }
  yield encoder.end()
}

function reading(path: string): ReadStream {
  return createReadStream(path, { highWaterMark: 256 * 1024 })
}

async function* counted(source: AsyncIterable<Buffer>, progress: Progress): AsyncGenerator<Buffer, void, undefined> {
  for await (const chunk of source) {
    progress.bytes += chunk.length
    yield chunk
  }
}
