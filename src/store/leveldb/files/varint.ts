export class ByteReader {
  constructor(
    readonly bytes: Buffer,
    public at = 0,
    readonly end = bytes.length,
  ) {}

  get isDone(): boolean {
    return this.at >= this.end
  }

  /** Exact up to 2^53 - 1. */
  varint(): number {
    let value = 0
    for (let scale = 1; ; scale *= 128) {
      if (this.at >= this.end || scale > 2 ** 63) throw new RangeError('a number is cut short')
      const byte = this.bytes[this.at++] as number
      value += (byte & 0x7f) * scale
      if (byte < 0x80) return value
    }
  }

  take(length: number): Buffer {
    if (length > this.end - this.at) throw new RangeError('a string is cut short')
    this.at += length
    return this.bytes.subarray(this.at - length, this.at)
  }

  slice(): Buffer {
    return this.take(this.varint())
  }
}

export function varint(value: number): Buffer {
  const bytes: number[] = []
  let rest = value
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 0x80)
  return Buffer.from([...bytes, rest])
}
