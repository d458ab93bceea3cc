import { KvError } from '../../../errors/kv-error.js'
import { UnusableTable } from '../layout/unusable-table.js'

/**
 * - `conflict`: the statement is certainly not done, and may be done at once: another transaction changed its rows first.
 * - `lasting`: certainly not done, and the same statement would fail again.
 * - `transient`: a lost connection, a time-out, a server that starts or stops. A statement on its way may be done.
 */
export type FailureKind = 'conflict' | 'lasting' | 'transient'

/** Serialization failure, deadlock. */
const CONFLICTS: ReadonlySet<string> = new Set(['40001', '40P01'])
/** Codes of connecting (authorization, unknown database) and of statements that cannot succeed, in any language of the server. */
const LASTING = /^(?:0A|22|23|25|28|3D|3F|42)/
/** What the bytes of one row may cause, such as a key that is too long. It fails a whole statement. */
const OF_ONE_ROW = /^(?:22|23|54)/
/** Operator intervention and time-outs, an unknown outcome, too many connections, lost connections. */
const TRANSIENT = /^(?:08|57|40003|53300|55P03)/

/**
 * Only an answer of severity ERROR proves that nothing was done: FATAL and PANIC may come while a commit is under way. A server
 * that speaks another language calls it otherwise; then the statement counts as unknown.
 */
export function kindOf(error: unknown): FailureKind {
  if (error instanceof UnusableTable || error instanceof KvError) return 'lasting'
  const { code, severity } = error as { readonly code?: unknown; readonly severity?: unknown }
  if (typeof code !== 'string' || typeof severity !== 'string') return 'transient' // Of a socket, or of the client.
  if (CONFLICTS.has(code)) return 'conflict'
  if (LASTING.test(code)) return 'lasting'
  return severity === 'ERROR' && !TRANSIENT.test(code) ? 'lasting' : 'transient'
}

/** A statement without the row at fault may succeed. */
export function mayBeOfOneRow(error: unknown): boolean {
  const { code } = error as { readonly code?: unknown }
  return typeof code === 'string' && (CONFLICTS.has(code) || OF_ONE_ROW.test(code))
}

export function printFailure(error: unknown): string {
  // Several addresses of a host make an AggregateError, which has no message of its own.
  const { errors } = error as { readonly errors?: readonly unknown[] }
  const one = Array.isArray(errors) ? errors[0] : error
  const message = one instanceof Error ? one.message : String(one)
  return message.replaceAll(/\s+/g, ' ').trim()
}

export function unavailable(error: unknown): KvError {
  if (error instanceof KvError) return error
  return new KvError(
    'storage_unavailable',
    `PostgreSQL: ${printFailure(error)}`,
    {},
    {
      cause: error,
      isLasting: kindOf(error) === 'lasting',
    },
  )
}
