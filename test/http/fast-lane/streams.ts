import type { Random } from '../../anomalies/random.js'
import type { Dialogue } from './dialogue.js'
import { latin1 } from './latin1.js'
import { withShortWaits } from './leases.js'
import { mutated } from './mutations.js'
import { requestOf } from './requests.js'

/** Between requests, before the first and after the last. */
const JUNK = [
  '\r\n',
  '\r\n\r\n',
  '\n',
  '\r',
  '\0',
  ' ',
  'x',
  '0\r\n\r\n',
  'GET',
  'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  '\x16\x03\x01',
]

const END = ['half-close', 'half-close', 'half-close', 'half-close', 'eager half-close', 'hang-up'] as const

/** One client: some requests, most of them right, cut into segments. */
export function drawDialogue(random: Random): Dialogue {
  const count = random.chance(0.5) ? 1 : 1 + random.below(5)
  // Requests for one key that are in flight together are answered in any order, so they have keys of their own then.
  const isShared = random.chance(0.3)
  const wildness = random.pick([0, 0.02, 0.1, 0.3])
  const pieces: Buffer[] = []
  for (let slot = 0; slot < count; slot++) {
    if (random.chance(wildness / 3)) pieces.push(latin1(random.pick(JUNK)))
    pieces.push(requestOf(random, isShared ? 0 : slot, wildness))
  }
  if (random.chance(wildness / 3)) pieces.push(latin1(random.pick(JUNK)))
  const end = random.pick(END)
  if (isShared) return { segments: pieces, pacing: 'quiet', end }
  const whole = Buffer.concat(pieces)
  const bytes = random.chance(0.25) ? withShortWaits(mutated(random, whole)) : whole
  if (bytes.length < BYTEWISE_MAX && random.chance(0.01))
    return { segments: [...bytes].map((byte) => Buffer.of(byte)), pacing: 'read', end }
  return { segments: cut(random, bytes), pacing: random.pick(['none', 'read', 'read', 'quiet']), end }
}

const BYTEWISE_MAX = 600

function cut(random: Random, bytes: Buffer): Buffer[] {
  if (bytes.length === 0 || random.chance(0.4)) return [bytes]
  const ends = new Set<number>()
  for (let cuts = 1 + random.below(4); cuts > 0; cuts--)
    ends.add(random.chance(0.5) ? random.below(bytes.length) : nearLineEnd(random, bytes))
  const sorted = [0, ...[...ends].sort((a, b) => a - b), bytes.length]
  return sorted
    .slice(1)
    .map((end, i) => bytes.subarray(sorted[i], end))
    .filter(({ length }) => length > 0)
}

/** Within, before or behind a line's end: where parsers have states of their own. */
function nearLineEnd(random: Random, bytes: Buffer): number {
  const at = bytes.indexOf('\r\n', random.below(bytes.length))
  return at === -1 ? random.below(bytes.length) : Math.min(bytes.length, at + random.below(5))
}
