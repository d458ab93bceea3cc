import { KvError } from '../../../errors/kv-error.js'

const INVALID_ARGUMENT = 3
export const DEADLINE_EXCEEDED = 4
export const NOT_FOUND = 5
export const ALREADY_EXISTS = 6
export const PERMISSION_DENIED = 7
const FAILED_PRECONDITION = 9
const OUT_OF_RANGE = 11
export const UNIMPLEMENTED = 12
const UNAUTHENTICATED = 16

/**
 * Codes that Bigtable returns before it does anything, and would return again. All others count as transient. To mistake a
 * lasting failure for a transient one only costs time; to mistake a call that may be done for a failed one costs consistency:
 * UNAVAILABLE, DEADLINE_EXCEEDED, ABORTED, CANCELLED, RESOURCE_EXHAUSTED (too many calls for now), INTERNAL and UNKNOWN (streams
 * that a proxy resets), and failures without a code.
 */
const CERTAIN: ReadonlySet<unknown> = new Set([
  INVALID_ARGUMENT,
  NOT_FOUND,
  ALREADY_EXISTS,
  PERMISSION_DENIED,
  FAILED_PRECONDITION,
  OUT_OF_RANGE,
  UNIMPLEMENTED,
  UNAUTHENTICATED,
])

export function grpcCode(error: unknown): number | undefined {
  const code: unknown = (error as { readonly code?: unknown } | null | undefined)?.code
  return typeof code === 'number' ? code : undefined
}

export function isCertain(error: unknown): boolean {
  return error instanceof KvError || CERTAIN.has(grpcCode(error))
}

export function printFailure(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  return message.replaceAll(/\s+/g, ' ').trim()
}

export function unavailable(error: unknown): KvError {
  if (error instanceof KvError) return error
  return new KvError(
    'storage_unavailable',
    `Bigtable: ${printFailure(error)}`,
    {},
    {
      cause: error,
      isLasting: isCertain(error),
    },
  )
}
