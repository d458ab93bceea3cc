import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { BrowserGuard } from '../../../src/http/connections/browser-safety.js'
import type { TlsFiles } from '../../../src/http/connections/tls.js'
import type { Limits } from '../../../src/limits.js'

export const TOKENS = { rw: 'rw-token-0123456789', ro: 'ro-token-0123456789', k: 'kk-token-0123456789' }

/** How a server is set up that both lanes are compared on. */
export interface Variant {
  readonly name: string
  /** Of all dialogues. LevelDB and TLS take five times as long as the others. Default: 1. */
  readonly share?: number
  readonly store?: 'memory' | 'leveldb'
  readonly limits?: Partial<Limits>
  /** The text of a token file. */
  readonly tokens?: string
  readonly browserGuard?: BrowserGuard
  readonly tls?: TlsFiles
}

/** Streams with long keys and values reach these limits without being long themselves. */
const SMALL_LIMITS = { keyBytesMax: 40, valueBytesMax: 200, bodyBytesMax: 400, headerBytesMax: 1024, requestKeysMax: 3 }
const TOKEN_FILE = `rw ${TOKENS.rw}\nro ${TOKENS.ro}\nrw ${TOKENS.k} prefix=k\n`

export function variants(): readonly Variant[] {
  return [
    { name: 'on LevelDB', store: 'leveldb' },
    { name: 'in memory', share: 5 },
    { name: 'with tokens', share: 3, tokens: TOKEN_FILE },
    { name: 'guarded from browsers', share: 3, browserGuard: { loopbackNamesOnly: true } },
    { name: 'with small limits', share: 3, limits: SMALL_LIMITS },
    { name: 'over TLS', tls: certificate() },
  ]
}

export function certificate(): TlsFiles {
  const directory = mkdtempSync(join(tmpdir(), 'perkv-tls-'))
  try {
    const [key, cert] = [join(directory, 'key'), join(directory, 'crt')]
    const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '30']
    execFileSync('openssl', ['req', '-x509', ...kind, '-subj', '/CN=localhost', '-keyout', key, '-out', cert], {
      stdio: 'ignore',
    })
    return { key: readFileSync(key), cert: readFileSync(cert) }
  } finally {
    rmSync(directory, { recursive: true })
  }
}
