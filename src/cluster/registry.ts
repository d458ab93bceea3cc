import type { Timestamp } from '../timestamp.js'

/** Another server, or this one, as its row shows it. */
export interface KnownServer {
  readonly id: string
  /** Where the others reach it. */
  readonly url: string
  /** For how long its row has not changed, as far as this server has seen. */
  readonly silentMs: number
}

export interface ReachableServer {
  readonly url: string
  /** Aborted once this server considers the other one gone. */
  readonly gone: AbortSignal
}

export type Job = 'gc'

/** The servers of one store. What it is for and what it promises: README.md in this folder. */
export interface Registry {
  /** False when this process has the store to itself. */
  readonly isShared: boolean
  /** Of this process; the names of its transactions begin with it. undefined when it has the store to itself. */
  readonly id: string | undefined
  /**
   * Makes this server known, until `leave`.
   * @param oldest a lower bound of every snapshot that this server reads, now or later. It is asked before each beat.
   * @throws KvError `storage_unavailable`
   */
  join(oldest: () => Timestamp): Promise<void>
  leave(): Promise<void>
  /** Those that are considered alive, this one too. */
  servers(): readonly KnownServer[]
  /** @returns undefined when there is no such server, or it is gone. @throws KvError `storage_unavailable` */
  find(id: string): Promise<ReachableServer | undefined>
  /** Shows the others what this server holds by now. @throws KvError `storage_unavailable`: they may not see it. */
  publish(): Promise<void>
  /**
   * A lower bound of every snapshot that another server reads, now or later; `TIMESTAMP_MAX` when there is no other.
   * @throws KvError `storage_unavailable`
   */
  oldest(): Promise<Timestamp>
  /**
   * Tells the others how high this server may raise the safe point, or has raised it, before it asks them for `oldest`.
   * @throws KvError `storage_unavailable`: they may not see it.
   */
  announce(safePoint: Timestamp): Promise<void>
  /** The highest safe point that another server has announced; 0: none. @throws KvError `storage_unavailable` */
  announced(): Promise<Timestamp>
  /**
   * Runs `body` on at most one server at a time, unless one of them stands still for long. It saves work; nothing may rest on it.
   * @param body its signal is aborted well before other servers consider this one dead and may start the job themselves.
   * @returns undefined when another server runs the job.
   */
  lead<T>(job: Job, body: (signal: AbortSignal) => Promise<T>): Promise<T | undefined>
}
