import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { FILES_LOOK_EVERY_MS, FILES_LOOK_MS } from '../../../limits.js'
import type { Engine } from '../engine/engine.js'
import { numberOf } from '../files/verify-files.js'

/** Files of an open LevelDB are gone, or others have taken their place. The code makes it an error of the engine. */
export class DirectoryLost extends Error {
  override readonly name = 'DirectoryLost'
  readonly code = 'LEVEL_DIRECTORY_LOST'
}

const NO_ENTRY = { throwIfNoEntry: false } as const
/** LevelDB numbers logs and tables alike: this many may have come between two logs that are looked at. */
const LOG_NUMBERS_TRIED = 1000

interface OwnFile {
  readonly name: string
  readonly path: string
  readonly dev: number
  readonly ino: number
}

interface OpenFiles {
  readonly lock: OwnFile
  /** CURRENT, and the MANIFEST that it names: others only once LevelDB is opened again. */
  readonly state: readonly OwnFile[]
  /** The log that is written, or the one before it. */
  log: OwnFile
}

/**
 * Whether the directory still has the files that LevelDB has open in it. LevelDB writes on into files that somebody
 * deleted, and no start would ever find what it wrote; and where LOCK was deleted, a second server may come in.
 */
export class OwnFiles {
  /** Why the directory isn't this server's any more. It never is again. */
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
   * Called before an acknowledgement. LOCK is looked at every time, the other files now and then. While LOCK is there
   * nobody else has opened the database, and whoever opens it later reads what was written before this call.
   * @throws DirectoryLost
   */
  require(): void {
    if (performance.now() - this.#lookedAtMs >= FILES_LOOK_MS) this.#look()
    else this.#compare(this.#open.lock)
    this.requireNotLost()
  }

  /** By what is known: without a look. @throws DirectoryLost */
  requireNotLost(): void {
    if (this.lost !== undefined) throw new DirectoryLost(this.lost)
  }

  /**
   * Opening LevelDB again makes new files, also where it fails in the end. While LOCK is there they are nobody else's; where
   * it has gone meanwhile, the next look says so.
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
    // LevelDB deletes a log once the next one is begun and a table has all that was in it.
    const isLogGone = this.lost === undefined && this.#stateOf(log) === 'gone'
    const next = isLogGone ? this.#logAfter(numberOf(log.name)) : undefined
    if (next === undefined) this.#compare(log)
    else this.#open.log = next
  }

  #compare(file: OwnFile): void {
    if (this.lost !== undefined || this.#isReopening) return
    const state = this.#stateOf(file)
    if (state === 'same') return
    const what = state === 'gone' ? 'is gone' : 'is another file'
    this.lost = `the data directory ${this.directory} was changed under the server: ${file.name} ${what}`
    this.stop()
    this.onLost(this.lost)
  }

  /** A file that can't be looked at, because rights were taken away for example, is still there. */
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

  /** By name first: a listing that is made while LevelDB makes and deletes files may miss one that is there all the time. */
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

/** An engine that acknowledges nothing once its files are gone: a layer around it that nobody else knows of. */
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
