import type { Timestamp } from '../timestamp.js'

export interface KnownServer {
  readonly id: string
  /** Where the other servers reach it. */
  readonly url: string
  /** Milliseconds for which its row has not changed, as far as this server has seen. */
  readonly silentMs: number
}

export interface ReachableServer {
  readonly url: string
  /** Aborted once this server considers the other one dead. */
  readonly gone: AbortSignal
}

export type Job = 'gc' | 'webhooks'

/** The servers of one store. README.md in this folder explains its purpose and its promises. */
export interface Registry {
  /** False when this process has the store to itself. */
  readonly isShared: boolean
  /** Id of this process, with which the ids of its transactions begin. undefined when it has the store to itself. */
  readonly id: string | undefined
  /**
   * Announces this server to the others, until `leave`.
   * @param oldest a lower bound of every snapshot that this server reads, now or later. Called before each beat.
   * @throws KvError `storage_unavailable`
   */
  join(oldest: () => Timestamp): Promise<void>
  leave(): Promise<void>
  /** The servers that are considered alive, including this one. */
  servers(): readonly KnownServer[]
  /** @returns undefined when the server is unknown or dead. @throws KvError `storage_unavailable` */
  find(id: string): Promise<ReachableServer | undefined>
  /** Publishes the `oldest` snapshot of this server. @throws KvError `storage_unavailable`: the others may not see it. */
  publish(): Promise<void>
  /**
   * A lower bound of every snapshot that another server reads, now or later; `TIMESTAMP_MAX` when there is no other.
   * @throws KvError `storage_unavailable`
   */
  oldest(): Promise<Timestamp>
  /**
   * Tells the other servers how high this one may raise the safe point, or has raised it, before it asks for `oldest`.
   * @throws KvError `storage_unavailable`: they may not see it.
   */
  announce(safePoint: Timestamp): Promise<void>
  /** The highest safe point that another server has announced; 0: none. @throws KvError `storage_unavailable` */
  announced(): Promise<Timestamp>
  /**
   * Runs `body` on at most one server at a time, unless a server stalls for long. Only saves work: correctness must not depend
   * on it.
   * @param body its signal is aborted well before other servers consider this one dead and may start the job themselves.
   * @returns undefined when another server runs the job.
   */
  lead<T>(job: Job, body: (signal: AbortSignal) => Promise<T>): Promise<T | undefined>
}
