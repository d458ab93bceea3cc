export function latin1(text: string): Buffer {
  return Buffer.from(text, 'latin1')
}
