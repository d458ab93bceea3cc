const BYTES_MAX = 8192

/** The fields of a record that is a JSON object of at most 8 KiB. Anything else has none. */
export function jsonFields(bytes: Uint8Array): Readonly<Record<string, unknown>> {
  if (bytes.length > BYTES_MAX) return {}
  try {
    const fields: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
    return typeof fields === 'object' && fields !== null ? (fields as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}
