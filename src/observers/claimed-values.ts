import { keyText } from '../bytes/key-text.js'
import { isKvError } from '../errors/kv-error.js'
import type { GetAnswer, Pair, PercolatorApi } from '../percolator/api.js'
import { hasExpired } from '../percolator/write.js'
import type { Timestamp } from '../timestamp.js'
import type { Notification } from './rules/observers-api.js'

/** A claim reads no further value once it has this many bytes. */
const VALUES_BYTES = 8 * 1024 * 1024
/** Values may be long, so the first read takes few keys. */
const FIRST_KEYS = 16
const KEYS = 256
/** While values are no longer than this on average, the next read takes `KEYS` keys. */
const SHORT_BYTES = 4096
/** A page is read again this often when new locks appear. Then its remaining keys count as locked. */
const TRIES_MAX = 8

/**
 * Reads the value of each notified key as of `ts`, and of an expired one the value that it had. Locked keys have none. The list ends
 * early when the values are long.
 */
export async function withValues(
  store: Pick<PercolatorApi, 'batchGet'>,
  notifications: readonly Notification[],
  ts: Timestamp,
): Promise<Notification[]> {
  const keys = notifications.map(({ key }) => key)
  const valued = (await readValues(store, keys, ts)).map((answer, i): Notification => {
    const notification = notifications[i] as Notification
    if (answer === undefined) return notification
    return answer.found ? { ...notification, found: true, value: answer.value } : { ...notification, found: false }
  })
  return withExpired(store, valued)
}

export function mayHaveExpired({ kind, found }: Notification): boolean {
  return found === false && (kind === 'expired' || kind === 'put')
}

/** Each is read at a timestamp of its own. */
async function withExpired(
  store: Pick<PercolatorApi, 'batchGet'>,
  notifications: readonly Notification[],
): Promise<Notification[]> {
  const all: Notification[] = []
  let bytes = 0
  while (all.length < notifications.length && bytes < VALUES_BYTES) {
    const some = notifications.slice(all.length, all.length + FIRST_KEYS)
    for (const one of await Promise.all(some.map((each) => withOld(store, each)))) {
      if (bytes >= VALUES_BYTES) break
      bytes += one.old?.length ?? 0
      all.push(one)
    }
  }
  return all
}

/** The old value is left out where a lock is in the way, and where the version was collected. */
async function withOld(store: Pick<PercolatorApi, 'batchGet'>, notification: Notification): Promise<Notification> {
  const { key, commitTs, fence } = notification
  if (!mayHaveExpired(notification)) return notification
  try {
    // A version that expires before it has marked its key is known by its put.
    const ts = notification.kind === 'put' ? commitTs : commitTs - 1
    const [{ value: old, expireTs } = {}] = (await store.batchGet({ keys: [key], ts })).pairs
    return old !== undefined && hasExpired(expireTs ?? 0, fence) ? { ...notification, old } : notification
  } catch (error) {
    if (isKvError(error, 'key_locked') || isKvError(error, 'ts_below_safe_point')) return notification
    throw error
  }
}

/**
 * Reads keys at a timestamp without waiting for locks. The first read starts in this turn of the event loop.
 * @param keys no duplicates.
 * @returns the values of the first keys, undefined for a locked key. Fewer than the keys when the values reach `VALUES_BYTES`.
 */
async function readValues(
  store: Pick<PercolatorApi, 'batchGet'>,
  keys: readonly Uint8Array[],
  ts: Timestamp,
): Promise<(GetAnswer | undefined)[]> {
  const answers: (GetAnswer | undefined)[] = []
  let bytes = 0
  while (answers.length < keys.length && bytes < VALUES_BYTES) {
    const count = answers.length > 0 && bytes <= answers.length * SHORT_BYTES ? KEYS : FIRST_KEYS
    for (const answer of await readUnlocked(store, keys.slice(answers.length, answers.length + count), ts)) {
      if (bytes >= VALUES_BYTES) break
      if (answer?.found) bytes += answer.value.length
      answers.push(answer)
    }
  }
  return answers
}

async function readUnlocked(
  store: Pick<PercolatorApi, 'batchGet'>,
  keys: readonly Uint8Array[],
  ts: Timestamp,
): Promise<(GetAnswer | undefined)[]> {
  const locked = new Set<string>()
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const unlocked = keys.filter((key) => !locked.has(keyText(key)))
    if (unlocked.length === 0) break
    try {
      const { pairs } = await store.batchGet({ keys: unlocked, ts })
      const found = new Map(pairs.map((pair) => [keyText(pair.key), pair]))
      return keys.map((key) => (locked.has(keyText(key)) ? undefined : answerOf(found.get(keyText(key)))))
    } catch (error) {
      if (!isKvError(error, 'key_locked')) throw error
      const { lock, locks } = error.fields
      for (const { key } of locks ?? (lock === undefined ? [] : [lock])) locked.add(keyText(key))
    }
  }
  return keys.map(() => undefined)
}

function answerOf(pair: Pair | undefined): GetAnswer {
  if (pair?.value === undefined) return { found: false }
  return { found: true, value: pair.value, commitTs: pair.commitTs }
}
