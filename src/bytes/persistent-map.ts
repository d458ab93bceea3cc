import { lowerBound } from './ordered-keys.js'

const NODE_MAX = 64

/** A leaf has values, an inner node has children. `keys[i]` is the key of `values[i]`, or not above any key of `children[i]`. */
interface Node<V> {
  /** The map that may change this node; others copy it first. */
  readonly owner: object
  readonly keys: string[]
  readonly values: V[]
  readonly children: Node<V>[] | undefined
}

/**
 * A sorted map of strings with snapshots in constant time: a B-tree that copies the nodes on its way to a change, each once per
 * snapshot. Nodes that lose keys are not merged; empty ones are removed.
 */
export class PersistentMap<V> {
  #root: Node<V>
  #owner: object = {}

  constructor() {
    this.#root = { owner: this.#owner, keys: [], values: [], children: undefined }
  }

  get(key: string): V | undefined {
    let node = this.#root
    while (node.children !== undefined) node = node.children[childOf(node.keys, key)] as Node<V>
    const at = lowerBound(node.keys, key)
    return node.keys[at] === key ? node.values[at] : undefined
  }

  set(key: string, value: V): void {
    const root = this.#owned(this.#root)
    const right = this.#setIn(root, key, value)
    this.#root =
      right === undefined
        ? root
        : {
            owner: this.#owner,
            keys: [root.keys[0] as string, right.keys[0] as string],
            values: [],
            children: [root, right],
          }
  }

  delete(key: string): void {
    if (this.get(key) === undefined) return // Copies no nodes.
    this.#root = this.#owned(this.#root)
    this.#deleteIn(this.#root, key)
    while (this.#root.children?.length === 1) this.#root = this.#root.children[0] as Node<V>
  }

  /** A map of the same entries. Later changes of one do not affect the other. */
  snapshot(): PersistentMap<V> {
    this.#owner = {} // Both maps copy the present nodes before they change them.
    const snapshot = new PersistentMap<V>()
    snapshot.#root = this.#root
    return snapshot
  }

  /** @returns the first `limit` entries with keys in `[from, to)`; the last ones, descending, when `reverse`. */
  range(from: string, to: string, limit: number, reverse = false): [string, V][] {
    const found: [string, V][] = []
    if (from >= to) return found
    if (reverse) collectDown(this.#root, from, to, limit, found)
    else collectUp(this.#root, from, to, limit, found)
    return found
  }

  #owned(node: Node<V>): Node<V> {
    const { owner, keys, values, children } = node
    if (owner === this.#owner) return node
    return { owner: this.#owner, keys: keys.slice(), values: values.slice(), children: children?.slice() }
  }

  /** @param node owned by this map. @returns the upper part of a node that has become too large. */
  #setIn(node: Node<V>, key: string, value: V): Node<V> | undefined {
    const { keys, values, children } = node
    if (children === undefined) {
      const at = lowerBound(keys, key)
      if (keys[at] === key) {
        values[at] = value
        return undefined
      }
      keys.splice(at, 0, key)
      values.splice(at, 0, value)
      return this.#split(node, at)
    }
    const at = childOf(keys, key)
    if (key < (keys[at] as string)) keys[at] = key
    const child = this.#owned(children[at] as Node<V>)
    children[at] = child
    const right = this.#setIn(child, key, value)
    if (right === undefined) return undefined
    keys.splice(at + 1, 0, right.keys[0] as string)
    children.splice(at + 1, 0, right)
    return this.#split(node, at + 1)
  }

  /**
   * @param added index of the key that made it larger. After the last one, nodes stay full: keys that arrive in order fill them.
   */
  #split({ keys, values, children }: Node<V>, added: number): Node<V> | undefined {
    if (keys.length <= NODE_MAX) return undefined
    const from = added === NODE_MAX ? NODE_MAX : NODE_MAX / 2
    return {
      owner: this.#owner,
      keys: keys.splice(from),
      values: values.splice(from),
      children: children?.splice(from),
    }
  }

  /** @param node owned by this map, and has the key. */
  #deleteIn({ keys, values, children }: Node<V>, key: string): void {
    if (children === undefined) {
      const at = lowerBound(keys, key)
      keys.splice(at, 1)
      values.splice(at, 1)
      return
    }
    const at = childOf(keys, key)
    const child = this.#owned(children[at] as Node<V>)
    children[at] = child
    this.#deleteIn(child, key)
    if (child.keys.length > 0) return
    keys.splice(at, 1)
    children.splice(at, 1)
  }
}

function collectUp<V>(node: Node<V>, from: string, to: string, limit: number, found: [string, V][]): void {
  const { keys, values, children } = node
  for (let i = children === undefined ? lowerBound(keys, from) : childOf(keys, from); i < keys.length; i++) {
    const key = keys[i] as string
    if (found.length >= limit || (key >= to && (children === undefined || i > 0))) return
    if (children === undefined) found.push([key, values[i] as V])
    else collectUp(children[i] as Node<V>, from, to, limit, found)
  }
}

function collectDown<V>(node: Node<V>, from: string, to: string, limit: number, found: [string, V][]): void {
  const { keys, values, children } = node
  for (let i = (children === undefined ? lowerBound(keys, to) : childOf(keys, to) + 1) - 1; i >= 0; i--) {
    const key = keys[i] as string
    if (found.length >= limit) return
    if (children !== undefined) collectDown(children[i] as Node<V>, from, to, limit, found)
    else if (key >= from) found.push([key, values[i] as V])
    if (key < from) return
  }
}

function childOf(keys: readonly string[], key: string): number {
  const at = lowerBound(keys, key)
  return keys[at] === key ? at : Math.max(0, at - 1)
}
