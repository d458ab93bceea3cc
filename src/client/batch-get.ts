import { keyText } from '../bytes/key-text.js'
import { isAnswerTooLarge } from './answer-too-large.js'
import { type As, type Read, readValue } from './bytes.js'

const BATCH_KEYS = 1000

interface Found {
  readonly key: Uint8Array
  readonly value?: Uint8Array
}

type ReadKeys = (keys: readonly Uint8Array[]) => Promise<readonly Found[]>

/**
 * Reads many keys, in several requests if necessary.
 * @param read must read the same snapshot each time.
 */
export async function batchGetValues<A extends As>(
  keys: readonly Uint8Array[],
  as: A,
  read: ReadKeys,
): Promise<(Read<A> | undefined)[]> {
  const asked = keys.map((key) => ({ key, text: keyText(key) }))
  const distinct = [...new Map(asked.map(({ key, text }) => [text, key])).values()]
  const values = new Map<string, Uint8Array>()
  for (let from = 0; from < distinct.length; from += BATCH_KEYS) {
    for (const { key, value } of await readBatch(distinct.slice(from, from + BATCH_KEYS), read))
      if (value !== undefined) values.set(keyText(key), value)
  }
  return asked.map(({ key, text }) => {
    const value = values.get(text)
    return value && readValue(value, as, key)
  })
}

/** Splits the request in half when the values are too large for one answer. */
async function readBatch(keys: readonly Uint8Array[], read: ReadKeys): Promise<readonly Found[]> {
  try {
    return await read(keys)
  } catch (error) {
    if (keys.length === 1 || !isAnswerTooLarge(error)) throw error
    const middle = Math.ceil(keys.length / 2)
    return [...(await readBatch(keys.slice(0, middle), read)), ...(await readBatch(keys.slice(middle), read))]
  }
}
