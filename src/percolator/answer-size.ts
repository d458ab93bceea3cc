import { KvError } from './errors.js'

/** What a pair counts for in the size of an answer or a transaction. */
export function pairBytes({
  key,
  value,
}: {
  readonly key: Uint8Array
  readonly value?: Uint8Array | undefined
}): number {
  return key.length + (value?.length ?? 0)
}

/** @param limit in bytes of keys and values. */
export function answerTooLarge(limit: number): KvError<'payload_too_large'> {
  const detail = `the answer has over ${limit} bytes of keys and values: ask for fewer keys`
  return new KvError('payload_too_large', detail, { limit })
}
