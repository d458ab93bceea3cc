import { KvError } from '../errors/kv-error.js'
import type { RegistryName, RegistryRows, Swapped } from './registry-rows.js'
import { encodeJob } from './server-record.js'
import { isSame, type Sighting } from './sightings.js'

/** Calls once after `ms`, and never keeps the process running. @returns what ends it. */
export type Timer = (ms: number, call: () => void) => () => void

/** Half of what it takes until others may take over. */
const CONFIRMED_MS_MAX = 10_000
const BEAT_MS = 2000

export interface JobLeaseOptions {
  readonly rows: RegistryRows
  readonly name: RegistryName
  /** Of this process. */
  readonly id: string
  readonly timer: Timer
  readonly elapsedMs: () => number
}

/** A job's row while this server does the job. */
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
   * @param held the present row, if there is one; it must be this server's own, or that of one that is gone.
   * @param beat above that of every earlier row of this process.
   * @returns undefined when another server was faster, or nobody knows.
   */
  static async take(options: JobLeaseOptions, held: Sighting | undefined, beat: number): Promise<JobLease | undefined> {
    const { rows, name, id, elapsedMs } = options
    const bytes = encodeJob({ id, beat })
    const beganMs = elapsedMs()
    if (!(await isWritten(rows, name, held?.bytes, bytes))) return undefined
    return new JobLease(options, bytes, beat, beganMs)
  }

  /** Aborted when the row could not be confirmed for `CONFIRMED_MS_MAX`, or is another's. */
  get signal(): AbortSignal {
    return this.#lost.signal
  }
  get beat(): number {
    return this.#beat
  }

  #scheduleBeat(): void {
    this.#stopBeat = this.#options.timer(BEAT_MS, () => {
      this.#beating = this.#renew()
        .catch(() => {}) // The deadline judges.
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

  /** Leaves the job to others at once. */
  async release(): Promise<void> {
    this.#isOver = true
    this.#stopBeat()
    await this.#beating
    this.#stopDeadline()
    const { rows, name } = this.#options
    await rows.swap(name, this.#bytes, undefined).catch(() => {}) // What stays is dead in a while.
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
