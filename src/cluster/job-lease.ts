import { KvError } from '../errors/kv-error.js'
import type { RegistryName, RegistryRows, Swapped } from './registry-rows.js'
import { encodeJob } from './server-record.js'
import { isSame, type Sighting } from './sightings.js'

/** Calls once after `ms`, and never keeps the process running. @returns a function that cancels it. */
export type Timer = (ms: number, call: () => void) => () => void

/** Half of the time after which other servers may take over. */
const CONFIRMED_MS_MAX = 10_000
const BEAT_MS = 2000

export interface JobLeaseOptions {
  readonly rows: RegistryRows
  readonly name: RegistryName
  /** Id of this process. */
  readonly id: string
  readonly timer: Timer
  readonly elapsedMs: () => number
}

export class JobLease {
  readonly #options: JobLeaseOptions
  readonly #lost = new AbortController()
  #bytes: Uint8Array
  #beat: number
  #stopBeat: () => void = () => {}
  #stopDeadline: () => void = () => {}
  #beating: Promise<void> = Promise.resolve()
  #isOver = false

  private constructor(options: JobLeaseOptions, bytes: Uint8Array, beat: number, confirmedAtMs: number) {
    this.#options = options
    this.#bytes = bytes
    this.#beat = beat
    this.#confirm(confirmedAtMs)
    this.#scheduleBeat()
  }

  /**
   * @param held the present row, if any; it must belong to this server, or to a dead one.
   * @param beat above that of every earlier row of this process.
   * @returns undefined when another server was faster, or the outcome is unknown.
   */
  static async take(options: JobLeaseOptions, held: Sighting | undefined, beat: number): Promise<JobLease | undefined> {
    const { rows, name, id, elapsedMs } = options
    const bytes = encodeJob({ id, beat })
    const beganMs = elapsedMs()
    if (!(await isWritten(rows, name, held?.bytes, bytes))) return undefined
    return new JobLease(options, bytes, beat, beganMs)
  }

  /** Aborted when the row could not be confirmed for `CONFIRMED_MS_MAX`, or belongs to another server. */
  get signal(): AbortSignal {
    return this.#lost.signal
  }
  get beat(): number {
    return this.#beat
  }

  #scheduleBeat(): void {
    this.#stopBeat = this.#options.timer(BEAT_MS, () => {
      this.#beating = this.#renew()
        .catch(() => {}) // The deadline decides.
        .then(() => {
          if (!this.#isOver && !this.#lost.signal.aborted) this.#scheduleBeat()
        })
    })
  }

  async #renew(): Promise<void> {
    const { rows, name, id, elapsedMs } = this.#options
    const beganMs = elapsedMs()
    const next = encodeJob({ id, beat: ++this.#beat })
    if (await isWritten(rows, name, this.#bytes, next)) {
      this.#bytes = next
      this.#confirm(beganMs)
      return
    }
    const found = await rows.read(name)
    if (found === undefined || !isSame(found, this.#bytes)) this.#lose()
  }

  #confirm(atMs: number): void {
    this.#stopDeadline()
    if (this.#isOver || this.#lost.signal.aborted) return
    const leftMs = atMs + CONFIRMED_MS_MAX - this.#options.elapsedMs()
    if (leftMs <= 0) this.#lose()
    else this.#stopDeadline = this.#options.timer(leftMs, () => this.#lose())
  }

  #lose(): void {
    this.#stopBeat()
    this.#stopDeadline()
    this.#lost.abort(new KvError('storage_unavailable', 'another server may do this job by now', {}))
  }

  /** Lets other servers take over the job at once. */
  async release(): Promise<void> {
    this.#isOver = true
    this.#stopBeat()
    await this.#beating
    this.#stopDeadline()
    const { rows, name } = this.#options
    await rows.swap(name, this.#bytes, undefined).catch(() => {}) // A row that remains counts as dead after a while.
  }
}

/** Whether the row holds `next` now. */
async function isWritten(
  rows: RegistryRows,
  name: RegistryName,
  expected: Uint8Array | undefined,
  next: Uint8Array,
): Promise<boolean> {
  const swapped: Swapped = await rows.swap(name, expected, next)
  if (swapped === 'done') return true
  const found = await rows.read(name)
  return found !== undefined && isSame(found, next)
}
