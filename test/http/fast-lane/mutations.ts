import type { Random } from '../../anomalies/random.js'

const TELLING = [...'\r\n\t \0:;,"/%?#&=-+.0129aAzZ{}[]()<>@\\^`|~\x01\x0b\x0c\x1f\x7f\x80\xa0\xff'].map((c) =>
  c.charCodeAt(0),
)

type Mutation = (random: Random, bytes: Buffer, at: number) => Buffer

const MUTATIONS: readonly Mutation[] = [
  (random, bytes, at) => spliced(bytes, at, at + 1, Buffer.of((bytes[at] ?? 0) ^ (1 << random.below(8)))),
  (random, bytes, at) => spliced(bytes, at, at + 1, Buffer.of(random.pick(TELLING))),
  (random, bytes, at) => spliced(bytes, at, at, Buffer.of(random.pick(TELLING))),
  (random, bytes, at) => spliced(bytes, at, at, Buffer.of(random.below(256))),
  (random, bytes, at) => spliced(bytes, at, at + 1 + random.below(4), Buffer.of()),
  (random, bytes, at) => spliced(bytes, at, at + random.below(bytes.length - at), Buffer.of()),
  (random, bytes, at) => spliced(bytes, at, at, bytes.subarray(at, at + 1 + random.below(40))),
  (random, bytes, at) => {
    const from = random.below(bytes.length)
    return spliced(bytes, at, at, bytes.subarray(from, from + 1 + random.below(40)))
  },
  (_, bytes, at) => bytes.subarray(0, at),
]

/** One to three small changes anywhere. */
export function mutated(random: Random, bytes: Buffer): Buffer {
  let result = bytes
  for (let left = 1 + random.below(3); left > 0 && result.length > 0; left--)
    result = random.pick(MUTATIONS)(random, result, random.below(result.length))
  return result
}

function spliced(bytes: Buffer, from: number, to: number, between: Buffer): Buffer {
  return Buffer.concat([bytes.subarray(0, from), between, bytes.subarray(to)])
}
