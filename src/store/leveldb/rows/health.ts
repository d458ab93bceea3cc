import { isKvError, KvError } from '../../../errors/kv-error.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import type { RestoreProgress } from '../../store.js'
import type { Engine } from '../engine/engine.js'
import { readRestoreProgress } from './restore-progress.js'

const REOPEN_PAUSE_MS = 1000

export const SHUTTING_DOWN = 'the server is shutting down'

/**
 * ```
 * open --a write failed--> recovering --opened again--> open
 * open, recovering --close--> closing --> closed
 * any of them --end--> ended
 * ```
 */
type State =
  /** `lastFault` is the fault of the last recovery, for the errors of writes that it interrupted. */
  | { readonly name: 'open'; readonly lastFault?: string }
  /**
   * A write failed. Writes are refused until the database was opened again, which on a full disk needs room first. Reads go on
   * while the engine is up, except reads of keys that the failed write was to change.
   */
  | {
      readonly name: 'recovering'
      readonly failure: string
      /** `failure`, and the message of the last failed attempt to reopen. */
      readonly fault: string
      /** False while the engine is closed or opening. */
      readonly isEngineUp: boolean
      readonly reopenNotBefore: number
    }
  /** All calls are refused until the server is started again. */
  | { readonly name: 'ended'; readonly why: string }
  /** `closing`: writes are refused, reads go on. */
  | { readonly name: 'closing' | 'closed'; readonly fault: string }

export type OnWritable = (message: string, isWritable: boolean) => void

export class Health {
  readonly #engine: Engine
  readonly #reload: () => Promise<() => void>
  readonly #onChange: OnWritable | undefined
  #state: State = { name: 'open' }
  /** Set while a restore is incomplete: all calls but the restore are refused, in every state. */
  #restoring: RestoreProgress | undefined
  #reopening: Promise<void> | undefined
  #reopenings = 0
  #reported: string | undefined
  #refusedSinceMs = 0
  /** Set when closing begins. A failed write then does not reopen the database: the next opening of the directory decides it. */
  #isClosing = false

  /**
   * @param reload reopens the engine and rebuilds the tables in memory from it. The function that it returns runs in the turn of
   *   the event loop that allows writes again.
   * @param onChange called with one sentence when writes are refused, and when they are accepted again.
   */
  constructor(engine: Engine, reload: () => Promise<() => void>, onChange?: OnWritable) {
    this.#engine = engine
    this.#reload = reload
    this.#onChange = onChange
  }

  /** Call first. */
  async start(): Promise<void> {
    this.#restoring = await readRestoreProgress(this.#engine)
  }

  // ---- What is allowed now

  get isAvailable(): boolean {
    return this.#isReadable && this.#restoring === undefined
  }

  get isWritable(): boolean {
    return this.#state.name === 'open'
  }

  get fault(): string | undefined {
    if (this.#state.name === 'open') return undefined
    return this.#state.name === 'ended' ? this.#state.why : this.#state.fault
  }

  get restoring(): RestoreProgress | undefined {
    return this.#restoring
  }

  /** How often the database was closed to be reopened. */
  get reopenings(): number {
    return this.#reopenings
  }

  get #isReadable(): boolean {
    const { name } = this.#state
    return name === 'open' || name === 'closing' || (name === 'recovering' && this.#state.isEngineUp)
  }

  /** True for an error that only repeats what `onChange` reported: a failed write, and the refusals that follow from it. */
  isReported(error: unknown): boolean {
    return (
      isKvError(error, 'storage_unavailable') && this.#reported !== undefined && error.message.includes(this.#reported)
    )
  }

  requireAvailable(): void {
    this.requireEngine()
    this.requireRestored()
  }

  requireEngine(): void {
    if (this.#state.name === 'open') return
    this.reopenSoon()
    if (!this.#isReadable) throw this.refusal()
  }

  requireWritable(): void {
    this.requireWritableEngine()
    this.requireRestored()
  }

  /** For a restore, which writes while all other calls are refused. */
  requireWritableEngine(): void {
    if (this.#state.name === 'open') return
    this.reopenSoon()
    throw this.refusal()
  }

  requireRestored(): void {
    if (this.#restoring === undefined) return
    const detail =
      'a restore is not complete: it is running, or was interrupted and must be continued with the same backup'
    throw new KvError('storage_unavailable', detail, {})
  }

  /** The error of a refused call, even if the database has been reopened since. */
  refusal(): KvError<'storage_unavailable'> {
    return new KvError('storage_unavailable', this.#refusalDetail(), {})
  }

  #refusalDetail(): string {
    const state = this.#state
    if (state.name === 'ended') return state.why
    if (state.name === 'closing' || state.name === 'closed') return SHUTTING_DOWN
    const fault = state.name === 'open' ? state.lastFault : state.fault
    const isDown = state.name === 'recovering' && !state.isEngineUp
    const refused = isDown ? 'it is being opened again' : 'writes are refused until it is opened again'
    return `the storage engine failed (${fault}); ${refused}`
  }

  // ---- A restore

  /** From this turn of the event loop on, all calls but the restore are refused. */
  shutOut(restoring: RestoreProgress): void {
    this.#restoring = restoring
  }

  letIn(): void {
    this.#restoring = undefined
  }

  // ---- A failed write

  /** Fulfilled when the database was reopened, or the attempt failed. Never rejects. */
  failed(error: unknown): Promise<void> {
    const fault = messageOf(error)
    const state = this.#state
    if (state.name === 'ended') return Promise.resolve()
    if (state.name === 'closing' || state.name === 'closed') this.#state = { ...state, fault }
    else {
      if (state.name === 'open') this.#reportRefused(fault)
      this.#state = { name: 'recovering', failure: fault, fault, isEngineUp: true, reopenNotBefore: 0 }
    }
    return this.#isClosing ? Promise.resolve() : this.#reopen()
  }

  #reportRefused(fault: string): void {
    if (this.#onChange === undefined) return
    this.#refusedSinceMs = performance.now()
    this.#reported = fault
    this.#onChange(`writes are refused until the disk takes them again: ${fault}`, false)
  }

  /** Starts another attempt to reopen, if the pause after the last one is over. */
  reopenSoon(): void {
    if (this.#state.name !== 'recovering' || this.#isClosing || this.#reopening !== undefined) return
    if (performance.now() >= this.#state.reopenNotBefore) void this.#reopen()
  }

  /**
   * A failed write may or may not be on disk, and LevelDB's log may end in half a record. Opening the database again decides
   * both, and memory is rebuilt from it. Without room on the disk the database stays open for reads; when opening fails it stays
   * closed. After a pause the next attempt follows, with the next request or by itself. Never rejects.
   */
  #reopen(): Promise<void> {
    this.#reopening ??= this.#tryReopen().finally(() => {
      this.#reopening = undefined
    })
    return this.#reopening
  }

  async #tryReopen(): Promise<void> {
    try {
      await this.#engine.requireRoom()
      this.#whileRecovering({ isEngineUp: false })
      this.#reopenings++
      const onOpen = await this.#reload()
      this.#restoring = await readRestoreProgress(this.#engine)
      if (this.#state.name === 'recovering') this.#state = { name: 'open', lastFault: this.#state.fault }
      onOpen()
      if (this.isWritable) this.#onChange?.(`writes are accepted again, after ${this.#refusedFor}`, true)
    } catch (error) {
      const failure = this.#state.name === 'recovering' ? this.#state.failure : ''
      const reopenNotBefore = performance.now() + REOPEN_PAUSE_MS
      this.#whileRecovering({ fault: `${failure}; ${messageOf(error)}`, reopenNotBefore })
      setTimeout(() => this.reopenSoon(), REOPEN_PAUSE_MS + 1).unref()
    }
  }

  get #refusedFor(): string {
    return `${Math.round((performance.now() - this.#refusedSinceMs) / 1000)} s`
  }

  /** The store may have ended in the meantime. */
  #whileRecovering(changes: Partial<State & { name: 'recovering' }>): void {
    if (this.#state.name === 'recovering') this.#state = { ...this.#state, ...changes }
  }

  // ---- The end

  /** @param why the message of every refusal from now on. */
  end(why: string): void {
    this.#state = { name: 'ended', why }
  }

  /** Prevents later attempts to reopen. @returns false if it was called before. */
  beginClose(): boolean {
    if (this.#isClosing) return false
    this.#isClosing = true
    return true
  }

  closing(): void {
    if (this.#state.name !== 'ended') this.#state = { name: 'closing', fault: this.fault ?? 'closed' }
  }

  closed(): void {
    if (this.#state.name !== 'ended') this.#state = { name: 'closed', fault: this.fault ?? 'closed' }
  }

  async reopened(): Promise<void> {
    await this.#reopening
  }
}

/**
 * The cause's message if there is one: abstract-level itself only says "Database failed to open". Must not name keys, because
 * `/readyz` shows it to every caller.
 */
function messageOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  if (error instanceof CorruptRecord) return error.withoutKey
  if (cause instanceof CorruptRecord) return cause.withoutKey
  return cause instanceof Error ? cause.message : String(cause)
}
