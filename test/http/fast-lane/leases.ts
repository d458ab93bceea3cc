import type { Random } from '../../anomalies/random.js'
import { latin1 } from './latin1.js'
import { mutated } from './mutations.js'

/** Who holds the leases that each dialogue finds: they have the names of the keys of the slots. */
export const LEASE_HOLDER = 'h'
export const LEASE_TTL_MS = 3_600_000
export const LEASE_NAMES = Array.from({ length: 6 }, (_, slot) => `k${slot}`)

/** Stands for the fence of the lease of a slot. It is another one on each server, but has as many digits everywhere. */
export function fencePlaceholder(slot: number): number {
  return 1_111_111_111_111_110 + slot
}

const PLACEHOLDER = /111111111111111([0-5])/g

/** @param fences those of one server, by slot. @returns the pieces with the same lengths. */
export function withFences(pieces: readonly Buffer[], fences: readonly number[]): Buffer[] {
  const text = Buffer.concat(pieces).toString('latin1')
  const bytes = latin1(text.replace(PLACEHOLDER, (_, slot) => `${fences[Number(slot)]}`))
  let at = 0
  return pieces.map(({ length }) => {
    at += length
    return bytes.subarray(at - length, at)
  })
}

const WAIT = /(wait_ms"\s*:\s*)([-+.\deE]*\d)/g

/** Mutations make long waits of short ones. The length stays. */
export function withShortWaits(bytes: Buffer): Buffer {
  return latin1(
    bytes
      .toString('latin1')
      .replace(WAIT, (whole, name, ms) => (ms.length < 3 ? whole : `${name}${'9'.padStart(ms.length)}`)),
  )
}

const ODD_TEXTS = [
  ...['', ' ', 'null', '[]', '"x"', '{}', '{"holder":"h"}', '{"ttl_ms":3600000}', '{"holder":"h","ttl_ms":3600000,}'],
  '{"holder":"h","ttl_ms":3600000}{}',
  ' {"holder":"h","ttl_ms":3600000} ',
  '\ufeff{"holder":"h","ttl_ms":3600000}',
  '{"holder":"h","holder":"h","ttl_ms":3600000}',
  '{"\\u0068older":"\\u0068","ttl_ms":3.6e6}',
  '{"holder":"h","ttl_ms":3600000.0,"wait_ms":0,"fence":null}',
  '{"holder":"h","ttl_ms":"3600000"}',
  '{"holder":"h","ttl_ms":3600000,"ttl":1}',
  '{"holder":"h","ttl_ms":3600001}',
  '{"holder":"h","ttl_ms":99}',
  '{"holder":"h","ttl_ms":3600000,"fence":0}',
  '{"holder":"h","ttl_ms":3600000,"fence":9007199254740992}',
  '{"holder":"h","ttl_ms":3600000,"wait_ms":-1}',
  '{"holder":"h","ttl_ms":3600000,"__proto__":{}}',
  '{"holder":"","ttl_ms":3600000}',
  '{"holder":"a\\nb","ttl_ms":3600000}',
  '{"holder":"\\ud800","ttl_ms":3600000}',
  `{"holder":"${'x'.repeat(255)}","ttl_ms":3600000}`,
  `{"holder":"${'x'.repeat(256)}","ttl_ms":3600000}`,
  `{"holder":"${'ä'.repeat(255)}","ttl_ms":3600000}`,
]
/** Lengths that something is decided by: the lane's own, and a limit of one of the variants. */
const LENGTHS = [400, 401, 1024, 1025, 4096]

/** The body of a PUT of a lease. Most are renewals. */
export function leaseBody(random: Random, slot: number, wildness: number): Buffer {
  if (random.chance(wildness / 2)) return Buffer.from(random.pick(ODD_TEXTS))
  const fence = fencePlaceholder(slot)
  const text = JSON.stringify({
    holder: random.pick([LEASE_HOLDER, LEASE_HOLDER, LEASE_HOLDER, LEASE_HOLDER, 'another', 'ä']),
    ttl_ms: random.pick([LEASE_TTL_MS, LEASE_TTL_MS, LEASE_TTL_MS, 60_000]),
    ...(random.chance(0.3) && { fence: random.pick([fence, fence, fence - 10, 5]) }),
    ...(random.chance(0.1) && { wait_ms: random.pick([0, 0, 1, 5]) }),
  })
  if (random.chance(0.05)) return Buffer.from(text.padEnd(random.pick(LENGTHS)))
  const bytes = Buffer.from(text)
  return random.chance(wildness) ? withShortWaits(mutated(random, bytes)) : bytes
}
