import { type JsonBytes, jsonBytes } from '../client/http/json-bytes.js'

export { jsonBytes }
export type WireBytes = JsonBytes

const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

export function textOf(bytes: Uint8Array): string | undefined {
  try {
    return decoder.decode(bytes)
  } catch {
    return undefined
  }
}

export function wireOf(bytes: Uint8Array): WireBytes {
  const text = textOf(bytes)
  if (text !== undefined) return text
  let binary = ''
  for (const byte of bytes) binary += String.fromCharCode(byte)
  return { base64: btoa(binary) }
}

export function sizeOf(wire: WireBytes): number {
  return typeof wire === 'string' ? encoder.encode(wire).length : jsonBytes(wire).length
}

/** Its length as it came, which a page may keep in memory. */
export function charactersOf(wire: WireBytes): number {
  return typeof wire === 'string' ? wire.length : wire.base64.length
}

/** Byte strings are equal when their ids are. Addresses of the page contain them. */
export function idOf(wire: WireBytes): string {
  if (typeof wire === 'string' && wire.isWellFormed()) return encodeURIComponent(wire)
  return [...jsonBytes(wire)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('')
}

export function ofId(id: string): WireBytes | undefined {
  if (/%(?![\da-f]{2})/i.test(id)) return undefined
  const bytes: number[] = []
  for (const part of id.split(/(%[\da-f]{2})/i)) {
    if (/^%[\da-f]{2}$/i.test(part)) bytes.push(Number.parseInt(part.slice(1), 16))
    else bytes.push(...encoder.encode(part))
  }
  return wireOf(Uint8Array.from(bytes))
}

export function compareBytes(one: Uint8Array, other: Uint8Array): number {
  for (let i = 0; i < one.length && i < other.length; i++)
    if (one[i] !== other[i]) return (one[i] as number) - (other[i] as number)
  return one.length - other.length
}

/** Characters that a reader would not see, or that change the direction of the text around them. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu

/** One line for people: bytes that are not UTF-8 and invisible characters are escaped. */
export function shown(wire: WireBytes): string {
  if (typeof wire === 'string')
    return wire.replace(INVISIBLE, (character) => {
      if (character === '\n') return '\\n'
      if (character === '\t') return '\\t'
      return `\\u{${character.codePointAt(0)?.toString(16)}}`
    })
  return [...jsonBytes(wire)]
    .map((byte) =>
      byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, '0')}`,
    )
    .join('')
}

/** The beginning of a value, in one line. Long values are cut first. */
export function preview(wire: WireBytes, charactersMax: number): string {
  const cut: WireBytes =
    typeof wire === 'string'
      ? wire.slice(0, charactersMax + 1)
      : { base64: wire.base64.slice(0, Math.ceil(charactersMax / 3) * 4) }
  const line = shown(cut)
  return line.length > charactersMax ? `${line.slice(0, charactersMax)}…` : line
}

/** The beginning of a long byte string, cut between characters where it is text. */
export function beginningOf(bytes: Uint8Array, bytesMax: number): WireBytes {
  if (bytes.length <= bytesMax) return wireOf(bytes)
  for (let cut = bytesMax; cut > bytesMax - 4; cut--) {
    const text = textOf(bytes.subarray(0, cut))
    if (text !== undefined) return text
  }
  return wireOf(bytes.subarray(0, bytesMax))
}

/** Lines of 16 bytes: offset, hex, and ASCII. */
export function hexDump(bytes: Uint8Array): string {
  const lines: string[] = []
  for (let at = 0; at < bytes.length; at += 16) {
    const line = bytes.subarray(at, at + 16)
    const hex = [...line].map((byte) => byte.toString(16).padStart(2, '0')).join(' ')
    const ascii = [...line].map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '·')).join('')
    lines.push(`${at.toString(16).padStart(6, '0')}  ${hex.padEnd(47)}  ${ascii}`)
  }
  return lines.join('\n')
}

export function bytesOfHex(text: string): Uint8Array | undefined {
  const digits = text.replace(/\s+/g, '')
  if (digits.length % 2 !== 0 || /[^\da-f]/i.test(digits)) return undefined
  return Uint8Array.from({ length: digits.length / 2 }, (_, i) => Number.parseInt(digits.slice(2 * i, 2 * i + 2), 16))
}

export function hexOf(bytes: Uint8Array): string {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join(' ')
}

export function readableSize(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1024 / 1024).toFixed(1)} MiB`
}
