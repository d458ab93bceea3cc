import type { Pair } from './answers.js'
import { compareBytes, jsonBytes, preview, type WireBytes } from './wire-bytes.js'

/** A key whose version at one time is not that at another. */
export interface Change {
  readonly key: WireBytes
  /** undefined: absent. */
  readonly before: Pair | undefined
  readonly after: Pair | undefined
}

export interface KeyDiff {
  readonly changes: readonly Change[]
  /** Where the next slice begins; undefined at the end. */
  readonly next: Uint8Array | undefined
  /** Number of keys. */
  readonly compared: number
}

/** The first keys of a range, at one time. */
interface KnownKeys {
  readonly pairs: readonly Pair[]
  /** The first key that is not known; undefined: all are. */
  readonly next: Uint8Array | undefined
}

/** Merges keys of the same range at two times, in their order, as far as both are known. Equal versions are no change. */
export function diffOf(before: KnownKeys, after: KnownKeys): KeyDiff {
  const next = firstOf(before.next, after.next)
  const isKnown = ({ key }: Pair): boolean => next === undefined || compareBytes(jsonBytes(key), next) < 0
  const [olds, news] = [before.pairs.filter(isKnown), after.pairs.filter(isKnown)]
  const changes: Change[] = []
  let compared = 0
  for (let i = 0, j = 0; i < olds.length || j < news.length; compared++) {
    const [one, other] = [olds[i], news[j]]
    const order =
      one === undefined ? 1 : other === undefined ? -1 : compareBytes(jsonBytes(one.key), jsonBytes(other.key))
    const [old, present] = [order <= 0 ? one : undefined, order >= 0 ? other : undefined]
    if (old !== undefined) i++
    if (present !== undefined) j++
    const key = (old ?? present)?.key
    if (key !== undefined && old?.commit_ts !== present?.commit_ts) changes.push({ key, before: old, after: present })
  }
  return { changes, next, compared }
}

function firstOf(one: Uint8Array | undefined, other: Uint8Array | undefined): Uint8Array | undefined {
  if (one === undefined || other === undefined) return one ?? other
  return compareBytes(one, other) <= 0 ? one : other
}

/** `expired`: the expiry of the first version has passed. The key may have been removed all the same, after it was prolonged. */
export type ChangeKind = 'added' | 'changed' | 'removed' | 'expired'

export function kindOf({ before, after }: Change, to: number): ChangeKind {
  if (before === undefined) return 'added'
  if (after !== undefined) return 'changed'
  return before.expire_ts !== undefined && before.expire_ts <= to ? 'expired' : 'removed'
}

export interface Previews {
  readonly before: string
  readonly after: string
  /** Whether the values are the same, so that the key was only written again. */
  readonly isSame: boolean
}

const PREVIEW_CHARACTERS = 120
/** Equal characters that are shown before the first difference. */
const LEAD_CHARACTERS = 24
/** The part of two values where they begin to differ. */
export function previewsOf(before: WireBytes, after: WireBytes): Previews {
  if (typeof before !== 'string' || typeof after !== 'string')
    return {
      before: preview(before, PREVIEW_CHARACTERS),
      after: preview(after, PREVIEW_CHARACTERS),
      isSame: JSON.stringify(before) === JSON.stringify(after),
    }
  let same = 0
  while (same < before.length && before[same] === after[same]) same++
  const begin = before !== after && same > PREVIEW_CHARACTERS - LEAD_CHARACTERS ? same - LEAD_CHARACTERS : 0
  const part = (text: string) => (begin === 0 ? '' : '…') + preview(text.slice(begin), PREVIEW_CHARACTERS)
  return { before: part(before), after: part(after), isSame: before === after }
}
