import { readFileSync, statSync } from 'node:fs'
import { parseTokens, type Tokens } from '../access/tokens.js'
import { requireUsable, type TlsFiles } from '../http/connections/tls.js'
import type { Logger } from '../logger.js'
import { UnusableFile } from './unusable-file.js'

export interface TlsPaths {
  readonly cert: string
  readonly key: string
}

const OTHERS_MAY_READ = 0o004

export function readTokens(path: string, log: Logger): Tokens {
  return usable(path, () => parseTokens(readSecret(path, log).toString('utf8')))
}

export function readTls({ cert, key }: TlsPaths, log: Logger): TlsFiles {
  const files = { cert: usable(cert, () => readFileSync(cert)), key: usable(key, () => readSecret(key, log)) }
  return usable(`${cert} with ${key}`, () => requireUsable(files))
}

function readSecret(path: string, log: Logger): Buffer {
  const found = statSync(path)
  // A FIFO comes from the shell: --token-file <(command).
  if (!found.isFile() && !found.isFIFO()) throw new Error('it is no file')
  if ((found.mode & OTHERS_MAY_READ) !== 0)
    log.warn({ file: path }, 'every user of this machine may read this file of secrets: chmod o-r')
  return readFileSync(path)
}

function usable<T>(what: string, read: () => T): T {
  try {
    return read()
  } catch (cause) {
    throw new UnusableFile(`${what} cannot be used: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    })
  }
}
