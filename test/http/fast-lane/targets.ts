import type { Random } from '../../anomalies/random.js'

const LEASES = '/v1/leases/'
const KEYS = ['e', 'long', 'bin', 'a/b', 'a%2Fb', 'a%2fb', 'none', 'none/none']

/** Encoded as they are sent. */
const ODD_KEYS = [
  ...[
    '',
    '.',
    '..',
    '../k0',
    './k0',
    'k0/..',
    'k0/.',
    '/',
    '//',
    'k0/',
    '/k0',
    '%',
    '%2',
    '%zz',
    '%2F',
    '%00',
    '%0d%0a',
    '%',
    'k0%',
  ],
  ...[
    '\xe9',
    '%e9',
    '%C3%A9',
    '\xc3\xa9',
    '%f0%9f%98%80',
    '%ff%fe',
    '\x80',
    '\xff',
    '%ed%a0%80',
    '%EF%BB%BF',
    '\x7f',
    '\x01',
    '\0',
    '\t',
  ],
  ...[
    'k0?',
    'k0??',
    '?',
    'k0?ts=20',
    'k0?ts=',
    'k0?ts=abc',
    'k0?ts=20&ts=21',
    'k0?at=2020-01-01T00:00:00Z',
    'k0?lock_wait_ms=5',
    'k0?ttl_ms=3600000',
    'k1?expire_ts=9007199254740991',
    'k2?expire_ts=1',
    'k0?ttl_ms=0',
    'k0?ttl_ms=5&expire_ts=5',
    'k0?ttl_ms=99999999999999999999',
    'k0?ttl_ms=%35',
    'k0?ttl_ms',
  ],
  ...['k0?x=1', 'k0?%74s=20', 'k0&ts=20', 'k0%3Fts=20', 'k0;ts=20', 'k0#', 'k0#f', '#', 'k0%23', 'k0?#', 'k0?a#b'],
  ...[
    'k0+1',
    'k0%2B1',
    'k0%20',
    'k0=1',
    'k0,1',
    'k0:1',
    'k0@1',
    "k0'",
    'k0"',
    'k0\\',
    'k0|',
    'k0^',
    'k0`',
    'k0<',
    'k0{}',
    'k0[0]',
    'k0~',
    'k0!$()*',
  ],
  ...[
    'batch_get',
    'key',
    ':key',
    '*',
    '__proto__',
    'constructor',
    'x'.repeat(41),
    '%41'.repeat(41),
    'y'.repeat(4096),
    'y'.repeat(4097),
    '%2f'.repeat(4097),
  ],
  ...['z'.repeat(31 * 1024), 'z'.repeat(33 * 1024), 'k0 k0', 'k0\rk0', 'k0\nk0'],
]

const ODD_PATHS = [
  ...[
    '/v1/leases',
    '/v1/leases?prefix=k',
    '/v1/leases/',
    '/v1/leases/k0?x=1',
    '/v1/leases/k0?holder=h',
    '/v1/leases/k%30',
    '/v1/leases/k0%2F',
    '/v1/leases/%zz',
    '/v1/leases/\xe4',
    '/v1/leases/%C3%A4',
    '/v1/leases/k0#',
    '/v1/leases/a b',
    '/v1/lease/k0',
    '/v1%2Fleases/k0',
    `/v1/leases/k${'y'.repeat(127)}`,
    `/v1/leases/k${'y'.repeat(128)}`,
  ],
  ...[
    '/v1/kv',
    '/v1/kv?limit=2&prefix=e',
    '/v1/kv?prefix=e&keys_only',
    '/v1/kv?prefix=zzz&count_only',
    '/v1/kv/?limit=2',
    '/livez',
    '/readyz',
    '/',
  ],
  ...[
    '',
    '*',
    'v1/kv/k0',
    '//v1/kv/k0',
    '/v1//kv/k0',
    '/V1/kv/k0',
    '/v1/KV/k0',
    '/v1/%6bv/k0',
    '/%76%31/kv/k0',
    '/v1%2Fkv/k0',
    '/v1/kv%2Fk0',
  ],
  ...[
    '/./v1/kv/k0',
    '/v1/../v1/kv/k0',
    '/v1/txn/',
    '/v1/txn?',
    '/v1/txn?x=1',
    '/v1/txn#',
    '/v1/tx%6e',
    '/v1/txn/no-such-txn/kv/k0',
  ],
  ...[
    'http://localhost/v1/kv/k0',
    'HTTP://localhost:7400/v1/kv/k0',
    'https://evil.example/v1/kv/k0',
    'http://localhost',
    'http://',
    'ftp://x/v1/kv/k0',
  ],
  ...[
    'localhost:7400',
    'http://localhost/v1/txn',
    'http://localhost?x',
    '/v1/kv/batch_get',
    '/v1/percolator/tso',
    '/v1/kv/k0/../../txn',
    '/nope',
    '/nope\xe9',
  ],
]

export function targetOf(random: Random, method: string, slot: number, wildness: number): string {
  if (random.chance(wildness / 2)) return random.pick(ODD_PATHS).replaceAll('leases/k0', `leases/k${slot}`)
  if (method === 'POST') return '/v1/txn'
  if (random.chance(method === 'PUT' ? 0.4 : 0.05)) {
    const name = keyOf(random, slot)
    return `${LEASES}${random.chance(0.15) ? escaped(random, name) : name}`
  }
  if (random.chance(wildness)) return `/v1/kv/${random.pick(ODD_KEYS).replaceAll('k0', `k${slot}`)}`
  const key = random.chance(0.2) && method === 'GET' ? random.pick(KEYS) : keyOf(random, slot)
  return `/v1/kv/${random.chance(0.15) ? escaped(random, key) : key}`
}

export function isLease(target: string): boolean {
  return target.startsWith(LEASES)
}

/** Absent ones too. */
export function keyOf(random: Random, slot: number): string {
  return `${random.pick(['k', 'k', 'k', 'i', 'n'])}${slot}`
}

function escaped(random: Random, key: string): string {
  return [...key]
    .map((c) => {
      if (c === '%' || random.chance(0.5)) return c
      const hex = c.charCodeAt(0).toString(16)
      return `%${random.chance(0.5) ? hex : hex.toUpperCase()}`
    })
    .join('')
}
