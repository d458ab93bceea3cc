import type { Timestamp } from '../../timestamp.js'

export interface FeedPosition {
  /** Everything at or below it was read; with `snapshotKey` it is the timestamp of the snapshot. */
  readonly ts: Timestamp
  /** The snapshot was read up to this key. */
  readonly snapshotKey?: Uint8Array | undefined
}

/** The `id` of server-sent events: `<ts>`, or `s.<ts>.<key in base64url>`. */
export function feedPositionText({ ts, snapshotKey }: FeedPosition): string {
  return snapshotKey === undefined ? String(ts) : `s.${ts}.${toBase64Url(snapshotKey)}`
}

export function parseFeedPosition(text: string): FeedPosition | undefined {
  const [, digits, key] = /^(?:s\.)?(\d{1,16})(?:\.([\w-]+))?$/.exec(text) ?? []
  const ts = Number(digits)
  if (digits === undefined || !Number.isSafeInteger(ts)) return undefined
  if (text.startsWith('s.') !== (key !== undefined)) return undefined
  if (key === undefined) return { ts }
  if (ts === 0) return undefined // A snapshot never has the timestamp 0.
  const snapshotKey = fromBase64Url(key)
  return snapshotKey && { ts, snapshotKey }
}

// Browsers lack Buffer.

function toBase64Url(bytes: Uint8Array): string {
  let text = ''
  for (const byte of bytes) text += String.fromCharCode(byte)
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
}

function fromBase64Url(text: string): Uint8Array | undefined {
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (one) => one.charCodeAt(0))
    return toBase64Url(bytes) === text ? bytes : undefined
  } catch {
    return undefined
  }
}
