/** @typedef {import('perkv/client').Db} Db */
/** @typedef {import('perkv/client').Txn} Txn */
/** @typedef {import('perkv/client').ChangedTxn<'bytes'>} ChangedTxn */

/**
 * How far the copy is. It is stored beside the copy, and changes in the same transactions.
 * @typedef {object} State
 * @property {string} [position] of the feed, up to which everything is in the copy
 * @property {string} [after] within a snapshot: the last key of it that is in the copy, as base64
 * @property {boolean} isWhole whether the copy is the source as of `position`: false within a snapshot, and between two parts of a
 *   transaction
 */

/** Another process has changed the copy, or an earlier try of this one has, whose answer was lost. */
export class Moved extends Error {
  constructor() {
    super('the copy was changed by another mirror, or by a try whose answer was lost')
  }
}

const STATES = 'mirror/'

/** Where the state of a copy is. It must not be a part of the copy. @param {string} prefix */
export function stateKeyOf(prefix) {
  const key = STATES + prefix
  if (key.startsWith(prefix)) throw new RangeError(`a mirror of "${prefix}" would be one of its own state, ${key}`)
  return key
}

/** @param {string | undefined} text @returns {State} */
export function parseState(text) {
  return text === undefined ? { isWhole: false } : JSON.parse(text)
}

/** The first key after all that begin with a prefix of UTF-8 text, which has no byte 255. @param {string} prefix */
function endOf(prefix) {
  const end = Buffer.from(prefix)
  end[end.length - 1] = /** @type {number} */ (end.at(-1)) + 1
  return end
}

/** @param {Uint8Array} key */
const next = (key) => Buffer.concat([key, Buffer.of(0)])

/** The copy of a prefix. */
export class Copy {
  /** @type {Db} */
  #db
  #prefix
  #stateKey
  /** The stored state. @type {string | undefined} */
  #text

  /** @param {Db} db @param {string} prefix @param {string | undefined} text */
  constructor(db, prefix, text) {
    this.#db = db
    this.#prefix = prefix
    this.#stateKey = stateKeyOf(prefix)
    this.#text = text
  }

  /** @param {Db} db @param {string} prefix */
  static async open(db, prefix) {
    return new Copy(db, prefix, await db.get(stateKeyOf(prefix)))
  }

  get state() {
    return parseState(this.#text)
  }

  /**
   * Applies transactions that follow the state, all in one.
   * @param {readonly ChangedTxn[]} txns
   * @throws Moved when the state is not the one that this process has stored last
   */
  async apply(txns) {
    await this.#commit(async (txn) => {
      let state = this.state
      for (const one of txns) state = one.isSnapshot ? await this.#putPart(txn, one, state) : await putTxn(txn, one)
      return state
    })
  }

  /** Nothing has changed up to a timestamp. @param {number} ts */
  async moveTo(ts) {
    await this.#commit(async () => ({ position: String(ts), isWhole: true }))
  }

  /** The next follower begins with a snapshot. */
  async beginAnew() {
    await this.#commit(async () => ({ isWhole: false }))
  }

  /** @param {(txn: Txn) => Promise<State>} write */
  async #commit(write) {
    const text = await this.#db.transaction(async (txn) => {
      if ((await txn.get(this.#stateKey)) !== this.#text) throw new Moved()
      const text = JSON.stringify(await write(txn))
      await txn.put(this.#stateKey, text)
      return text
    })
    this.#text = text
  }

  /**
   * Makes one part of the snapshot equal: keys that it does not have are deleted, so a copy that was left behind need not be cleared.
   * @param {Txn} txn @param {ChangedTxn} part @param {State} state @returns {Promise<State>}
   */
  async #putPart(txn, { part, isLast, changes, position }, { after }) {
    const start = part === 0 || after === undefined ? Buffer.from(this.#prefix) : next(Buffer.from(after, 'base64'))
    const last = changes.findLast(({ op }) => op === 'put')
    const lastKey = last?.op === 'put' ? last.key : undefined
    const end = isLast || lastKey === undefined ? endOf(this.#prefix) : next(lastKey)
    /** @type {Map<string, Buffer>} */
    const present = new Map()
    for await (const { key, value } of txn.scan({ start, end, as: 'bytes' }))
      present.set(Buffer.from(key).toString('latin1'), Buffer.from(value))
    for (const change of changes) {
      if (change.op !== 'put') continue
      const name = Buffer.from(change.key).toString('latin1')
      if (!present.get(name)?.equals(change.value)) await txn.put(change.key, change.value)
      present.delete(name)
    }
    for (const name of present.keys()) await txn.delete(Buffer.from(name, 'latin1'))
    if (isLast) return { position, isWhole: true }
    return { position, isWhole: false, ...(lastKey && { after: Buffer.from(lastKey).toString('base64') }) }
  }
}

/** @param {Txn} txn @param {ChangedTxn} changed @returns {Promise<State>} */
async function putTxn(txn, { commitTs, changes, isLast, position }) {
  for (const change of changes) {
    if (change.op === 'put') await txn.put(change.key, change.value)
    else if (change.op !== 'delete_range') await txn.delete(change.key)
    else {
      const { start, end } = change
      for await (const { key } of txn.scan({ start, end, as: 'bytes', keysOnly: true })) await txn.delete(key)
    }
  }
  return { position, isWhole: isLast && position === String(commitTs) }
}
