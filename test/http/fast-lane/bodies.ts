import type { Random } from '../../anomalies/random.js'
import { OBSERVER, SEED_TS } from './lane.js'
import { latin1 } from './latin1.js'
import { fencePlaceholder, leaseBody } from './leases.js'
import { mutated } from './mutations.js'
import { isLease, keyOf } from './targets.js'

const VALUES = [
  '',
  'v',
  'hello',
  '\0\x01\xff',
  '5',
  '{"json":true}',
  '\xef\xbb\xbfbom',
  '\r\n',
  '\r\n\r\n',
  '0\r\n\r\n',
]
/** Lengths that something is decided by: short values, small bodies, pieces, and the limits of one of the variants. */
const LENGTHS = [200, 201, 255, 256, 400, 401, 4096, 16_383, 16_384, 16_385, 20_000, 70_000]

/** @returns undefined for a request without one. */
export function bodyOf(
  random: Random,
  { method, target }: { readonly method: string; readonly target: string },
  slot: number,
  wildness: number,
): Buffer | undefined {
  if (method === 'PUT' && isLease(target)) return random.chance(0.05) ? undefined : leaseBody(random, slot, wildness)
  if (method === 'POST') return random.chance(wildness / 4) ? undefined : jsonBody(random, slot, wildness)
  if (method === 'PUT') return random.chance(0.05) ? undefined : rawValue(random, slot, wildness)
  return random.chance(0.02 + wildness / 3) ? rawValue(random, slot, wildness) : undefined
}

function rawValue(random: Random, slot: number, wildness: number): Buffer {
  if (random.chance(0.1)) return Buffer.alloc(random.pick(LENGTHS), 'v')
  if (random.chance(wildness))
    return latin1(`PUT /v1/kv/n${slot} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\nsmuggled`)
  return latin1(random.pick(VALUES))
}

const CHUNK_ENDS = ['', '\n', '\r', '\r\n\r\n']
const CHUNK_SIZES = ['0x5', '+5', '-1', '5 ', ' 5', '05', 'fffffffff', 'g', '', '5;x=y', '5;x="y"', '5\0', '5\n']
const LAST_CHUNKS = [
  '0\r\n',
  '0\r\nx-sum: 1\r\n\r\n',
  '',
  '0\r\n\r',
  '00\r\n\r\n',
  '0;x\r\n\r\n',
  '0\n\n',
  '0\r\ncontent-length: 5\r\n\r\n',
  '0\r\nbad header\r\n\r\n',
]

export function chunked(random: Random, body: Buffer, wildness: number): Buffer {
  const parts: Buffer[] = []
  for (let at = 0; at < body.length; ) {
    const length = 1 + random.below(body.length - at)
    const size = random.chance(wildness / 3) ? random.pick(CHUNK_SIZES) : length.toString(16)
    const end = random.chance(wildness / 5) ? random.pick(CHUNK_ENDS) : '\r\n'
    parts.push(latin1(`${size}\r\n`), body.subarray(at, at + length), latin1(end))
    at += length
  }
  parts.push(latin1(random.chance(wildness / 2) ? random.pick(LAST_CHUNKS) : '0\r\n\r\n'))
  return Buffer.concat(parts)
}

const ODD_TEXTS = [
  ...[
    '',
    ' ',
    'null',
    'true',
    '1',
    '"x"',
    '[]',
    '{}',
    '[{}]',
    '{"ops":[]}',
    '{"ops":null}',
    '{"ops":{}}',
    '{"checks":[]}',
    '{"ops":[],"ops":[]}',
    '{"ops":[],}',
  ],
  ...[
    '{"ops":[]} ',
    ' {"ops":[]}',
    '{"ops":[]}{}',
    '{"ops":[]}\0',
    '{"ops":[]',
    '{ops:[]}',
    "{'ops':[]}",
    '{"ops":[]}//',
    '{"Ops":[]}',
    '{"ops":[],"x":1}',
    '{"ops":[[]]}',
  ],
  ...[
    '{"__proto__":{"ops":[]}}',
    '{"ops":[],"__proto__":null}',
    '{"constructor":{"prototype":{}}}',
    '{"constructor":1}',
    '{"ops":[{"op":"get","key":"k","__proto__":{}}]}',
  ],
  ...[
    '{"max_retries":1e400}',
    '{"max_retries":-0}',
    '{"max_retries":1.0}',
    '{"max_retries":1e0}',
    '{"max_retries":01}',
    '{"max_retries":1001}',
    '{"max_retries":"1"}',
    '{"max_retries":NaN}',
  ],
  ...[
    '{"isolation":"serializable"}',
    '{"isolation":"x"}',
    '{"\\u006fps":[]}',
    '{"ops":[{"op":"\\u0067et","key":"k0"}]}',
    '{"ops":[{"op":"get","key":"\\ud800"}]}',
    '{"ops":[{"op":"get","key":"\\x"}]}',
  ],
  ...[
    '\ufeff{"ops":[]}',
    '{"ops":[{"op":"get","key":"\u0001"}]}',
    '{"ops":[{"op":"get","key":""}]}',
    '{"ops":[{"op":"get","key":{"base64":"AA"}}]}',
    '{"ops":[{"op":"get","key":{"base64":"AA==","x":1}}]}',
  ],
  ...[
    '{"ops":[{"op":"get"}]}',
    '{"ops":[{"op":"nope","key":"k"}]}',
    '{"ops":[{"op":"put","key":"k"}]}',
    '{"ops":[{"op":"get","key":"k","value":"v"}]}',
    '{"ops":[{"op":"get","key":1}]}',
  ],
  ...[
    '{"checks":[{"key":"k0"}]}',
    '{"checks":[{"key":"k0","exists":1}]}',
    '{"checks":[{"key":"k0","commit_ts":-1}]}',
    '{"checks":[{"key":"k0","exists":true,"value":"x","commit_ts":5}]}',
  ],
  `${'['.repeat(31)}${']'.repeat(31)}`,
  `${'['.repeat(33)}${']'.repeat(33)}`,
  `{"ops":${'['.repeat(3000)}${']'.repeat(3000)}}`,
  `{${Array.from({ length: 65 }, (_, i) => `"f${i}":0`).join()}}`,
  `{"ops":[${'{},'.repeat(300)}{}]}`,
  `{"ops":[${Array.from({ length: 4 }, () => '{"op":"get","key":"k0"}').join()}]}`,
]

function jsonBody(random: Random, slot: number, wildness: number): Buffer {
  if (random.chance(wildness / 2)) return Buffer.from(random.pick(ODD_TEXTS).replaceAll('k0', `k${slot}`))
  const body = {
    ...(random.chance(0.5) && { checks: listOf(random, () => checkOf(random, slot)) }),
    ...(random.chance(0.9) && { ops: listOf(random, () => opOf(random, slot)) }),
    ...(random.chance(0.2) && { acks: listOf(random, () => ackOf(random, slot)) }),
    ...(random.chance(0.1) && { notify: listOf(random, () => notificationOf(random, slot)) }),
    ...(random.chance(0.1) && { isolation: random.pick(['snapshot', 'serializable']) }),
    ...(random.chance(0.1) && { max_retries: random.below(5) }),
  }
  const text = Buffer.from(
    random.chance(0.2) ? JSON.stringify(body, undefined, random.pick([1, 2, '\t'])) : JSON.stringify(body),
  )
  return random.chance(wildness) ? mutated(random, text) : text
}

function listOf<T>(random: Random, one: () => T): T[] {
  return Array.from({ length: random.below(4) }, one)
}

function bytesOf(random: Random, text: string): unknown {
  return random.chance(0.2) ? { base64: latin1(text).toString('base64') } : text
}

function checkOf(random: Random, slot: number): object {
  if (random.chance(0.2))
    return { lease: keyOf(random, slot), fence: random.pick([fencePlaceholder(slot), fencePlaceholder(slot), 5]) }
  const key = bytesOf(random, keyOf(random, slot))
  const condition = random.pick([
    { exists: true },
    { exists: false },
    { commit_ts: SEED_TS },
    { commit_ts: 0 },
    { value: `value ${slot}` },
  ])
  return { key, ...condition }
}

function observerOf(random: Random): string {
  return random.pick([OBSERVER, OBSERVER, OBSERVER, 'nobody', 'no name'])
}

function ackOf(random: Random, slot: number): object {
  const fence = random.pick([SEED_TS, SEED_TS, SEED_TS - 1, 2 ** 51, Number.MAX_SAFE_INTEGER, 0])
  return { observer: observerOf(random), key: bytesOf(random, keyOf(random, slot)), fence }
}

function notificationOf(random: Random, slot: number): object {
  return { observer: observerOf(random), keys: listOf(random, () => bytesOf(random, keyOf(random, slot))) }
}

function opOf(random: Random, slot: number): object {
  const key = bytesOf(random, keyOf(random, slot))
  const value = bytesOf(random, random.chance(0.05) ? 'v'.repeat(random.pick(LENGTHS)) : random.pick(VALUES))
  return random.pick([
    { op: 'get', key },
    { op: 'put', key, value },
    { op: 'put', key, value, versionstamp: false }, // With true, keys have timestamps in them.
    { op: random.pick(['min', 'max']), key, by: random.pick([1, -1, 0]) },
    { op: 'delete', key },
    { op: 'insert', key, value },
    { op: 'increment', key, ...(random.chance(0.5) && { by: random.pick([1, -1, 0, Number.MAX_SAFE_INTEGER]) }) },
    { op: 'scan', prefix: `k${slot}`, ...(random.chance(0.5) && { limit: 1 }) },
  ])
}
