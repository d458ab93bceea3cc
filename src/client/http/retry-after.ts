/**
 * Returns the wait of a `Retry-After` header, in seconds or as a date, in milliseconds; 0 when the header is absent or invalid.
 */
export function retryAfterMs(header: string | null, nowMs: number = Date.now()): number {
  if (header === null) return 0
  if (/^\s*\d+\s*$/.test(header)) return Number(header) * 1000
  const dateMs = Date.parse(header)
  return Number.isNaN(dateMs) ? 0 : Math.max(0, dateMs - nowMs)
}
