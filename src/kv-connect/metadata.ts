import { tooLarge } from '../bytes/byte-limits.js'
import { invalid } from '../errors/kv-error.js'
import { KV_METADATA_BYTES_MAX, KV_METADATA_MS } from '../limits.js'
import type { KvDatabase } from './kv-database.js'

const VERSIONS: readonly number[] = [3, 2, 1]

/**
 * @param body of the exchange of metadata; empty: the client knows version 1 only.
 * @returns the newest version that both know. @throws KvError `invalid_argument`, `payload_too_large`
 */
export function versionFor(body: Uint8Array): number {
  if (body.length > KV_METADATA_BYTES_MAX) throw tooLarge('body', body.length, KV_METADATA_BYTES_MAX)
  const supported = body.length === 0 ? [1] : supportedVersions(body)
  const version = VERSIONS.find((one) => supported.includes(one))
  if (version === undefined)
    throw invalid('supportedVersions', `the server knows the versions ${VERSIONS.join(', ')} of KV Connect`)
  return version
}

function supportedVersions(body: Uint8Array): readonly unknown[] {
  const { supportedVersions } = jsonObject(body)
  if (!Array.isArray(supportedVersions) || !supportedVersions.every((one) => typeof one === 'number'))
    throw invalid('supportedVersions', 'supportedVersions must be a list of numbers')
  return supportedVersions
}

function jsonObject(body: Uint8Array): Record<string, unknown> {
  try {
    const parsed: unknown = JSON.parse(Buffer.from(body).toString('utf8'))
    if (typeof parsed === 'object' && parsed !== null) return parsed as Record<string, unknown>
  } catch {}
  throw invalid('body', 'the body must be a JSON object with supportedVersions')
}

/**
 * Clients refuse an answer with further fields.
 * @param origin of the server, as the client names it.
 */
export function metadataOf(
  database: KvDatabase,
  { version, origin, token, nowMs }: { version: number; origin: string; token: string; nowMs: number },
): object {
  const { name, id } = database
  // Relative to the URL of the exchange, so that a proxy may change the path. Version 1 has no relative ones.
  const url = version === 1 ? `${origin}/kv-connect/${name}` : `./${name}`
  const expiresAt = new Date(nowMs + KV_METADATA_MS).toISOString()
  return { version, databaseId: id, endpoints: [{ url, consistency: 'strong' }], token, expiresAt }
}

export interface DataPathHeaders {
  /** `x-denokv-version` */
  readonly version: string | undefined
  /** `x-denokv-database-id` */
  readonly databaseId: string | undefined
  /** `x-transaction-domain-id`, which version 1 has instead of the two others. */
  readonly domainId: string | undefined
}

/** @throws KvError `invalid_argument` for a call that was meant for another database, or of an unknown version. */
export function requireMeant({ id }: KvDatabase, { version, databaseId, domainId }: DataPathHeaders): void {
  if (version !== undefined && version !== '2' && version !== '3')
    throw invalid('x-denokv-version', 'x-denokv-version must be 2 or 3')
  const [name, given] =
    version === undefined ? ['x-transaction-domain-id', domainId] : ['x-denokv-database-id', databaseId]
  if (given === id) return
  if (given === undefined) throw invalid(name, `${name} is missing`)
  throw invalid(name, `${name} is not that of this database: exchange metadata again`)
}
