/** The longest beginning of a text with at most `bytesMax` bytes in UTF-8. Halves of surrogate pairs become U+FFFD. */
export function cutText(text: string, bytesMax: number): string {
  const start = text.slice(0, bytesMax).toWellFormed() // No character has less than a byte.
  const bytes = Buffer.from(start)
  if (bytes.length <= bytesMax) return start
  let end = bytesMax
  while (((bytes[end] ?? 0) & 0xc0) === 0x80) end-- // In the middle of a character.
  return bytes.toString('utf8', 0, end)
}
