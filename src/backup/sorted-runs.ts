import { createReadStream } from 'node:fs'
import { mkdir, open, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { decodeBackup } from './backup-decoder.js'
import { BackupEncoder } from './backup-encoder.js'
import type { BackupEntry, BackupHeader, RemovedRange } from './backup-format.js'
import { mergedVersions } from './merged-entries.js'
import { recordBytes } from './pair-records.js'

/** Bytes of an entry in memory, besides its key and value. */
const ENTRY_BYTES = 500

/**
 * Sorts changes, which arrive by commit_ts, by key, newest first. Changes beyond `bytesMax` are written to sorted files in a
 * directory of their own.
 */
export class SortedRuns {
  readonly #directory: string
  readonly #bytesMax: number
  #entries: BackupEntry[] = []
  #bytes = 0
  #files: string[] = []
  readonly removed: RemovedRange[] = []

  /** @param directory removed at the end, and at the start if an earlier run has left it. */
  constructor(directory: string, bytesMax: number) {
    this.#directory = directory
    this.#bytesMax = bytesMax
  }

  async add(entry: BackupEntry): Promise<void> {
    this.#entries.push(entry)
    this.#bytes += recordBytes(entry) + ENTRY_BYTES
    if (this.#bytes > this.#bytesMax) await this.#spill()
  }

  /** Yields the changes in order of their keys, those of a key newest first. Call it after the last `add`. */
  async *entries(): AsyncGenerator<BackupEntry, void, undefined> {
    let last: BackupEntry | undefined
    for await (const entry of mergedVersions([...this.#files.map(entriesOf), each(this.#sorted())])) {
      if (last === undefined || !isSameVersion(last, entry)) yield entry
      last = entry
    }
  }

  async close(): Promise<void> {
    await rm(this.#directory, { recursive: true, force: true })
  }

  #sorted(): BackupEntry[] {
    const sorted = this.#entries.toReversed().sort((a, b) => Buffer.compare(a.key, b.key) || b.commitTs - a.commitTs)
    return sorted.filter((entry, i) => i === 0 || !isSameVersion(sorted[i - 1] as BackupEntry, entry))
  }

  async #spill(): Promise<void> {
    if (this.#files.length === 0) await rm(this.#directory, { recursive: true, force: true })
    await mkdir(this.#directory, { recursive: true, mode: 0o700 })
    const path = join(this.#directory, String(this.#files.length))
    const file = await open(path, 'wx', 0o600)
    try {
      const encoder = new BackupEncoder()
      await file.appendFile(encoder.begin(OF_A_RUN))
      for (const entry of this.#sorted()) {
        const block = encoder.add(entry)
        if (block !== undefined) await file.appendFile(block)
      }
      await file.appendFile(encoder.end())
    } finally {
      await file.close()
    }
    this.#files.push(path)
    this.#entries = []
    this.#bytes = 0
  }
}

/** A version may be told twice; the later one counts. */
function isSameVersion(a: BackupEntry, b: BackupEntry): boolean {
  return a.commitTs === b.commitTs && Buffer.compare(a.key, b.key) === 0
}

const NOBODY = '0'.repeat(32)
/** A run has entries of any time. */
const OF_A_RUN: BackupHeader = { id: NOBODY, ts: 2 ** 53 - 2, perkv: '', base: { id: NOBODY, ts: 1 }, removed: [] }

export async function* entriesOf(path: string): AsyncGenerator<BackupEntry, void, undefined> {
  for await (const block of decodeBackup(createReadStream(path, { highWaterMark: 256 * 1024 })))
    if (block.type === 'data') yield* block.pairs
}

async function* each(entries: readonly BackupEntry[]): AsyncGenerator<BackupEntry, void, undefined> {
  yield* entries
}
