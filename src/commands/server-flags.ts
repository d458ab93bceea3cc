import { readFileSync } from 'node:fs'
import { type FlagReader, type Flags, type Given, notEmpty, UsageError } from '../server/flags.js'

export const SERVER_FLAGS = {
  server: { value: 'URL', help: 'of the server', default: 'http://127.0.0.1:7400' },
  'token-file': {
    value: 'FILE',
    help: 'file with the bearer token and nothing else; or give the token in PERKV_TOKEN',
    variable: 'PERKV_CLIENT_TOKEN_FILE', // PERKV_TOKEN_FILE is the server's own file, with one line per token.
  },
  'ca-file': { value: 'FILE', help: 'certificates to trust, PEM, of a server with a CA of its own' },
} as const satisfies Flags

export interface ServerAddress {
  readonly url: URL
  readonly token: string | undefined
  readonly ca: string | undefined
}

export function serverAddress(
  { required, optional }: Pick<FlagReader<keyof typeof SERVER_FLAGS>, 'required' | 'optional'>,
  env: NodeJS.ProcessEnv,
): ServerAddress {
  const { text, from } = required('server')
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (
    url === undefined ||
    !['http:', 'https:'].includes(url.protocol) ||
    `${url.search}${url.hash}${url.username}${url.password}` !== ''
  )
    throw new UsageError(`${from} must be an http or https URL, not "${text}"`)
  const caFile = optional('ca-file')
  return { url, token: tokenOf(optional('token-file'), env), ca: caFile && read(notEmpty(caFile), caFile.from) }
}

const TOKEN = /^[\x21-\x7e]+$/

function tokenOf(file: Given | undefined, env: NodeJS.ProcessEnv): string | undefined {
  const given = (file === undefined ? env['PERKV_TOKEN'] : read(notEmpty(file), file.from))?.trim()
  if (given && !TOKEN.test(given))
    throw new UsageError(`${file?.from ?? 'PERKV_TOKEN'} must hold one token and nothing else`)
  return given || tokenOfSharedFile(env['PERKV_TOKEN_FILE'])
}

/** PERKV_TOKEN_FILE is the server's list where both run in one environment. It counts here only when it is a single token. */
function tokenOfSharedFile(path: string | undefined): string | undefined {
  if (!path) return undefined
  try {
    const text = readFileSync(path, 'utf8').trim()
    return TOKEN.test(text) ? text : undefined
  } catch {
    return undefined
  }
}

function read(path: string, from: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new UsageError(`${from}: ${error instanceof Error ? error.message : String(error)}`)
  }
}
