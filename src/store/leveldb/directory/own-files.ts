import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { FILES_LOOK_EVERY_MS, FILES_LOOK_MS } from '../../../limits.js'
import type { Engine } from '../engine/engine.js'
import { numberOf } from '../files/verify-files.js'

/**
 * Files of an open LevelDB are gone or were replaced. The prefix `LEVEL_` of the code makes this an error of the engine.
 * @internal
 */
export class DirectoryLost extends Error {
  override readonly name = 'DirectoryLost'
  readonly code = 'LEVEL_DIRECTORY_LOST'
}

const NO_ENTRY = { throwIfNoEntry: false } as const
/** LevelDB numbers logs and tables together. The search for the next log tries this many numbers. */
const LOG_NUMBERS_TRIED = 1000

interface OwnFile {
  readonly name: string
  readonly path: string
  readonly dev: number
  readonly ino: number
}

interface OpenFiles {
  readonly lock: OwnFile
  /** CURRENT and its MANIFEST, which change only when LevelDB is opened again. */
  readonly state: readonly OwnFile[]
  /** The current log, or the one before it. */
  log: OwnFile
}

/**
 * Checks that the directory still has the files that LevelDB has open. LevelDB keeps writing into deleted files, and no start
 * would find those writes. A deleted LOCK lets a second server in.
 */
export class OwnFiles {
  /** Reason why the directory is no longer this server's; once set, it stays. */
  lost: string | undefined
  #open: OpenFiles
  #lookedAtMs = performance.now()
  #isReopening = false
  readonly #timer: NodeJS.Timeout

  /** @param onLost called once. */
  constructor(
    readonly directory: string,
    readonly onLost: (message: string) => void,
  ) {
    this.#open = this.#openFiles()
    this.#timer = setInterval(() => this.#look(), FILES_LOOK_EVERY_MS).unref()
  }

  /**
   * Call before each acknowledgement. Looks at LOCK every time, and at the other files every `FILES_LOOK_MS`. While LOCK is
   * there, no other process has opened the database, and one that opens it later reads the writes before this call.
   * @throws DirectoryLost
   */
  require(): void {
    if (performance.now() - this.#lookedAtMs >= FILES_LOOK_MS) this.#look()
    else this.#compare(this.#open.lock)
    this.requireNotLost()
  }

  /** Looks at no file. @throws DirectoryLost when an earlier look found the directory lost. */
  requireNotLost(): void {
    if (this.lost !== undefined) throw new DirectoryLost(this.lost)
  }

  /**
   * Opening LevelDB again makes new files, even when it fails in the end. While LOCK is there they belong to this server; if LOCK
   * has gone, the next look finds that.
   */
  async whileReopening(reopen: () => Promise<void>): Promise<void> {
    this.#isReopening = true
    try {
      await reopen()
    } finally {
      this.#isReopening = false
      if (this.#stateOf(this.#open.lock) === 'same') this.#open = this.#openFiles()
    }
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #look(): void {
    this.#lookedAtMs = performance.now()
    const { lock, state, log } = this.#open
    this.#compare(lock)
    for (const file of state) this.#compare(file)
    // LevelDB deletes a log once the next one is begun and a table holds its records.
    const found = this.#stateOf(log)
    const next = found === 'gone' && this.lost === undefined ? this.#logAfter(numberOf(log.name)) : undefined
    if (next === undefined) this.#compare(log, found)
    else this.#open.log = next
  }

  #compare(file: OwnFile, state = this.#stateOf(file)): void {
    if (this.lost !== undefined || this.#isReopening) return
    if (state === 'same') return
    const what = state === 'gone' ? 'is gone' : 'is another file'
    this.lost = `the data directory ${this.directory} was changed under the server: ${file.name} ${what}`
    this.stop()
    this.onLost(this.lost)
  }

  /** A file that cannot be looked at, for lack of permission for example, counts as present. */
  #stateOf({ path, dev, ino }: OwnFile): 'same' | 'gone' | 'other' {
    try {
      const found = statSync(path, NO_ENTRY)
      if (found === undefined) return 'gone'
      return found.ino === ino && found.dev === dev ? 'same' : 'other'
    } catch {
      return 'same'
    }
  }

  #openFiles(): OpenFiles {
    const manifest = readFileSync(join(this.directory, 'CURRENT'), 'latin1').trim()
    const log = this.#newestLog(-1) ?? this.#fileOf('its log')
    return { lock: this.#fileOf('LOCK'), state: ['CURRENT', manifest].map((name) => this.#fileOf(name)), log }
  }

  /** Tries names before a listing, which may miss a present file while LevelDB makes and deletes others. */
  #logAfter(number: number): OwnFile | undefined {
    for (let next = number + 1; next <= number + LOG_NUMBERS_TRIED; next++) {
      const found = this.#find(`${String(next).padStart(6, '0')}.log`)
      if (found !== undefined) return found
    }
    return this.#newestLog(number)
  }

  #newestLog(after: number): OwnFile | undefined {
    const logs = readdirSync(this.directory).filter((name) => name.endsWith('.log') && numberOf(name) > after)
    const newest = logs.sort((a, b) => numberOf(b) - numberOf(a))[0]
    return newest === undefined ? undefined : this.#find(newest)
  }

  #find(name: string): OwnFile | undefined {
    const path = join(this.directory, name)
    const found = statSync(path, NO_ENTRY)
    return found && { name, path, dev: found.dev, ino: found.ino }
  }

  #fileOf(name: string): OwnFile {
    const path = join(this.directory, name)
    const { dev, ino } = statSync(path)
    return { name, path, dev, ino }
  }
}

export function ownedEngine(engine: Engine, files: OwnFiles): Engine {
  return {
    ...engine,
    async write(ops, sync) {
      files.requireNotLost()
      await engine.write(ops, sync)
      files.require()
    },
    async requireRoom() {
      files.require()
      await engine.requireRoom()
    },
    async reopen() {
      files.require()
      await files.whileReopening(() => engine.reopen())
    },
    close() {
      files.stop()
      return engine.close()
    },
  }
}
