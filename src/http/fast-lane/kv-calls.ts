import type { Grant } from '../../access/grant.js'
import { checksFailed, committed, type Entry, entriesBytes } from '../../kv-connect/answers.js'
import { atomicWriteOf } from '../../kv-connect/atomic-write.js'
import { type KvDatabase, KvDatabases } from '../../kv-connect/kv-database.js'
import { requireMeant } from '../../kv-connect/metadata.js'
import { readSnapshot, type SnapshotRead, snapshotReadOf } from '../../kv-connect/snapshot-read.js'
import { type Limits, LOCK_WAIT_MS_DEFAULT, MAX_RETRIES_DEFAULT } from '../../limits.js'
import type { Timestamp } from '../../timestamp.js'
import type { OneShot } from '../../txn/one-shot.js'
import { encodeEntries } from '../wire/kv-entries.js'
import { type AnswerText, protobufText } from './answer-text.js'
import type { HeaderBlock } from './header-block.js'

const TARGET = /^([\w.-]+)\/(snapshot_read|atomic_write)$/

export interface KvRead {
  readonly kind: 'kv_read'
  readonly kv: KvDatabase
  readonly read: SnapshotRead
}

export interface KvWrite {
  readonly kind: 'kv_write'
  readonly txn: OneShot
}

/** The calls of KV Connect that the fast lane serves: what they ask, and how they are answered. */
export class KvCalls {
  readonly #limits: Limits
  readonly #databases: KvDatabases

  /** @param secret of the store. */
  constructor(secret: Uint8Array, limits: Limits) {
    this.#limits = limits
    this.#databases = new KvDatabases(secret)
  }

  /**
   * @param target `{database}/{call}`
   * @returns undefined for a call that node:http must handle. @throws KvError for one that it refuses.
   */
  ask(
    target: string,
    { kvVersion, kvDatabaseId }: HeaderBlock,
    body: Uint8Array,
    grant: Grant,
  ): KvRead | KvWrite | undefined {
    const [, name, call] = TARGET.exec(target) ?? []
    if (name === undefined) return undefined
    const kv = this.#databases.of(name)
    grant.requireRange(kv.range, 'database')
    requireMeant(kv, { version: kvVersion, databaseId: kvDatabaseId, domainId: undefined })
    if (call === 'snapshot_read') return { kind: 'kv_read', kv, read: snapshotReadOf(body, kv, this.#limits) }
    grant.requireWrite()
    const { checks, ops } = atomicWriteOf(body, kv, this.#limits)
    const waiting = { maxRetries: MAX_RETRIES_DEFAULT, lockWaitMs: LOCK_WAIT_MS_DEFAULT }
    return { kind: 'kv_write', txn: { checks, ops, ...waiting, caller: grant.identity } }
  }

  readonly read = readSnapshot
  readonly bytesOf = entriesBytes

  readText(ranges: readonly (readonly Entry[])[], kv: KvDatabase): AnswerText {
    return protobufText(encodeEntries(ranges, kv))
  }

  writtenText(commitTs: Timestamp): AnswerText {
    return protobufText(committed(commitTs))
  }

  /** @returns undefined for an error that is one of the protocol too. */
  checksText(error: unknown): AnswerText | undefined {
    const failed = checksFailed(error)
    return failed && protobufText(failed)
  }
}
