import { parseState, stateKeyOf } from './copy.mjs'

/** @typedef {import('perkv/client').Db} Db */

/**
 * Compares the copy of this moment with the source as of its position. Both go on meanwhile.
 * @param {Db} source @param {Db} target @param {string} prefix
 * @returns {Promise<{ position: number, pairs: number, differences: string[] } | undefined>} undefined while the copy is not whole
 */
export async function compare(source, target, prefix) {
  const copy = await target.snapshot()
  const { position, isWhole } = parseState(await copy.get(stateKeyOf(prefix)))
  if (!isWhole) return undefined
  const original = await source.snapshot(Number(position))
  const [mine, theirs] = [await pairsOf(copy, prefix), await pairsOf(original, prefix)]
  const differences = []
  for (const key of new Set([...mine.keys(), ...theirs.keys()]))
    if (mine.get(key) !== theirs.get(key)) differences.push(Buffer.from(key, 'latin1').toString())
  return { position: Number(position), pairs: theirs.size, differences }
}

/** @param {import('perkv/client').Snapshot} snapshot @param {string} prefix */
async function pairsOf(snapshot, prefix) {
  /** @type {Map<string, string>} */
  const pairs = new Map()
  for await (const { key, value } of snapshot.scan({ prefix, as: 'bytes' }))
    pairs.set(Buffer.from(key).toString('latin1'), Buffer.from(value).toString('latin1'))
  return pairs
}
