/** An adapter deletes all that is below its prefix, which would be the whole database below an empty one. */
export function requirePrefix(prefix: string): string {
  if (typeof prefix !== 'string' || prefix === '') throw new TypeError('prefix must be a string that is not empty')
  return prefix
}
