import { realpath } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { decodeBackup } from '../backup/backup-decoder.js'
import { BackupEncoder } from '../backup/backup-encoder.js'
import { BackupError, type BackupHeader } from '../backup/backup-format.js'
import { RunningSums } from '../backup/running-sums.js'
import { afterKey } from '../bytes/key-range.js'
import { type Flags, flagsHelp, integer, notEmpty, readFlags, UsageError } from '../server/flags.js'
import type { Timestamp } from '../timestamp.js'
import { amount } from './amount.js'
import type { Command } from './command.js'
import { headerOf, holdFrom, register, writeIncrement } from './increment.js'
import { type Output, PartFile, STDOUT } from './output.js'
import { Progress } from './progress.js'
import { RemotePin } from './remote-pin.js'
import {
  BREAKS_MAX,
  isPassing,
  pauseAfterBreak,
  Refused,
  type RemoteServer,
  remoteServer,
  TRANSFER_FLAGS,
} from './remote-server.js'

const BACKUP_FLAGS = {
  ...TRANSFER_FLAGS,
  ts: { value: 'TS', help: 'the snapshot to write; the newest that no lock blocks when absent' },
  since: { value: 'FILE', help: 'writes an increment: what has changed since the backup in FILE' },
  consumer: { value: 'NAME', help: 'a consumer that keeps what the next increment needs from collection' },
} as const satisfies Flags

export const backup: Command = {
  flags: BACKUP_FLAGS,
  operands: ['FILE'],
  help: `Usage: perkv backup [flags] FILE|-

Writes one snapshot of all pairs to FILE, or to stdout. It is FILE.part until it is complete, and a run that was broken
off is continued by the next one with the same FILE, while the server still has its snapshot.

With --since, FILE has every version that was written since another backup: a full one, or the increment before. perkv restore
takes the full one and all increments in their order, and makes the state of any moment that they cover.

Flags:
${flagsHelp(BACKUP_FLAGS)}`,

  async run(args, env) {
    const flags = readFlags(BACKUP_FLAGS, args, env, this.operands)
    const askedTs = flags.optional('ts')
    const ts = askedTs && integer(askedTs, 1, Number.MAX_SAFE_INTEGER)
    const path = flags.positionals[0] as string
    const since = flags.optional('since')
    if (since !== undefined && ts !== undefined) throw new UsageError('--ts does not go with --since')
    const consumer = flags.optional('consumer')?.text
    const base = since && (await headerOf(notEmpty(since)))
    if (since !== undefined && (await isSameFile(since.text, path)))
      throw new UsageError('the increment must not replace its own base: give it another FILE')
    const server = await remoteServer(flags, env)
    const progress = new Progress('backup', since === undefined ? 'key' : 'change', { isQuiet: flags.isSet('quiet') })
    const file = path === '-' ? undefined : await PartFile.open(path)
    try {
      if (base !== undefined) {
        await file?.keep(0)
        const directory = file === undefined ? join(tmpdir(), `perkv-backup-${process.pid}`) : `${path}.part.d`
        return await writeIncrement(server, file ?? STDOUT, progress, { base, consumer, directory })
      }
      const transfer = new Transfer(server, file ?? STDOUT, progress, consumer)
      if (file !== undefined) await transfer.goOnFrom(file, ts)
      await transfer.run(ts)
    } finally {
      progress.stop()
      await file?.close()
      server.close()
    }
  },
}

async function isSameFile(present: string, other: string): Promise<boolean> {
  return (await realpath(present)) === (await realpath(other).catch(() => undefined))
}

/** Transfer of one backup, over as many connections as needed. */
class Transfer {
  #encoder = new BackupEncoder()
  #header: BackupHeader | undefined
  #isExpected = false
  #pin: RemotePin | undefined

  constructor(
    readonly server: RemoteServer,
    readonly output: Output,
    readonly progress: Progress,
    readonly consumer: string | undefined,
  ) {}

  /** Keeps the complete blocks of an earlier run, if they belong to the requested snapshot. */
  async goOnFrom(file: PartFile, ts: Timestamp | undefined): Promise<void> {
    const sums = new RunningSums()
    let isCurrent = false
    try {
      for await (const block of decodeBackup(file.leftover(), { sums }))
        if (block.type === 'header') ({ header: this.#header, isCurrent } = block)
    } catch (error) {
      if (!(error instanceof BackupError)) throw error // The blocks before it are intact.
    }
    const isWanted = this.#header !== undefined && (ts === undefined || this.#header.ts === ts)
    // Closed sums mean that the backup is complete: nothing is left to continue. A file of an older version has no room for
    // expiries.
    if (!isWanted || !isCurrent || sums.isClosed) return this.#startOver(file)
    await file.keep(sums.length)
    this.#encoder = new BackupEncoder(sums)
    if (sums.pairs > 0) this.progress.note(`going on after ${amount(sums.pairs, 'key')} of ts ${this.#header?.ts}`)
  }

  async run(askedTs: Timestamp | undefined): Promise<void> {
    try {
      await this.#run(askedTs)
    } catch (error) {
      const isGone = error instanceof Refused && error.code === 'ts_below_safe_point'
      if (!isGone || askedTs !== undefined || this.#header === undefined || !(this.output instanceof PartFile))
        throw error
      this.progress.note(`the snapshot of ${this.output.path}.part is gone from the server: starting over`)
      await this.#startOver(this.output)
      await this.#run(undefined)
    }
    this.progress.finish(`, ts ${this.#header?.ts}`)
  }

  async #run(askedTs: Timestamp | undefined): Promise<void> {
    const knownTs = this.#header?.ts ?? askedTs
    this.#pin = knownTs === undefined ? undefined : await RemotePin.take(this.server, knownTs)
    try {
      if (this.consumer !== undefined) await register(this.server, this.consumer)
      for (let breaks = 0; ; breaks++) {
        const before = this.#encoder.sums.length
        try {
          await this.#receive(this.#header?.ts ?? askedTs)
          break
        } catch (error) {
          if (this.#encoder.sums.length > before) breaks = 0
          if (this.#header === undefined || !isBreak(error) || breaks >= BREAKS_MAX) throw error
          this.progress.note(`${(error as Error).message}; trying again`)
          await pauseAfterBreak(breaks)
        }
      }
      // While the pin holds the snapshot.
      if (this.consumer !== undefined && this.#header !== undefined)
        await holdFrom(this.server, this.consumer, this.#header.ts)
      await this.output.write(this.#encoder.end())
      await this.output.finish()
    } catch (error) {
      if (this.output instanceof PartFile)
        this.#pin?.leave() // The next run may continue from here.
      else await this.#pin?.release()
      throw error
    }
    await this.#pin?.release()
  }

  async #startOver(file: PartFile): Promise<void> {
    this.#header = undefined
    this.#isExpected = false
    this.#encoder = new BackupEncoder()
    await file.keep(0)
  }

  async #receive(ts: Timestamp | undefined): Promise<void> {
    const { lastKey } = this.#encoder.sums
    const start = lastKey && afterKey(lastKey)
    const query = [ts && `ts=${ts}`, start && `start=${percentEncoded(start)}`].filter((part) => part !== undefined)
    const response = await this.server.download(`/v1/admin/backup?${query.join('&')}`, 'application/octet-stream')
    for await (const block of decodeBackup(this.server.bodyOf(response))) {
      if (block.type === 'header') {
        await this.#begin(block.header)
        this.#expectAll(block.header.ts)
      }
      if (block.type !== 'data') continue
      const bytes = this.#encoder.data(block.pairs, block.body)
      await this.output.write(bytes)
      this.progress.add(block.pairs.length, bytes.length)
    }
  }

  /** Costs the server a read of all keys, so only where somebody watches. */
  #expectAll(ts: Timestamp): void {
    if (this.#isExpected || !this.progress.isWatched) return
    this.#isExpected = true
    this.progress.expect(this.server.count(ts), this.#encoder.sums.pairs)
  }

  async #begin(header: BackupHeader): Promise<void> {
    if (this.#header === undefined) {
      this.#header = header
      this.#pin ??= await RemotePin.take(this.server, header.ts) // The server holds its snapshot while it sends.
      await this.output.write(this.#encoder.begin(header))
    } else if (header.id !== this.#header.id) {
      const what = this.output instanceof PartFile ? `${this.output.path}.part` : 'what was written so far'
      throw new BackupError('unsupported', `${what} is of another server, which this one can't continue`)
    }
  }
}

function isBreak(error: unknown): boolean {
  return error instanceof BackupError ? error.reason === 'cut_off' : isPassing(error)
}

function percentEncoded(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex').replace(/../g, '%$&')
}
