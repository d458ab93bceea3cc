import { integerOf } from '../errors/integer-of.js'
import { KvError } from '../errors/kv-error.js'
import { LEASE_TTL_MS_MAX, LEASE_TTL_MS_MIN, LEASE_WAIT_MS_MAX } from '../limits.js'
import type { LeaseRequest, LeaseState } from './rules/leases-api.js'

/** @throws KvError `invalid_argument` */
export function requireTimes({ ttlMs, waitMs = 0 }: LeaseRequest): void {
  integerOf('ttl_ms', ttlMs, LEASE_TTL_MS_MIN, LEASE_TTL_MS_MAX)
  integerOf('wait_ms', waitMs, 0, LEASE_WAIT_MS_MAX)
}

export function heldByAnother({ name, holder, expiresAtMs }: LeaseState): KvError<'lease_held'> {
  const fields = { lease: name, holder, expiresAt: momentOf(expiresAtMs) }
  return new KvError('lease_held', `the lease ${name} is held by ${holder}`, fields)
}

export function keysAreLocked(name: string, holder: string, nowMs: number): KvError<'lease_held'> {
  const detail = `keys of the last holder of the lease ${name} are locked, and have to be deleted first`
  return new KvError('lease_held', detail, { lease: name, holder, expiresAt: momentOf(nowMs) })
}

export function otherFence(name: string, state: LeaseState | undefined): KvError<'precondition_failed'> {
  if (state === undefined)
    return new KvError('precondition_failed', `nobody holds the lease ${name}`, { lease: name, fence: 0 })
  const { holder, fence, expiresAtMs } = state
  const detail = `the lease ${name} is held by ${holder} under the fence ${fence}`
  return new KvError('precondition_failed', detail, { lease: name, holder, fence, expiresAt: momentOf(expiresAtMs) })
}

export function isFree(name: string): KvError<'not_found'> {
  return new KvError('not_found', `nobody holds the lease ${name}`, {})
}

export function tooManyLeases(leasesMax: number): KvError<'overloaded'> {
  return new KvError('overloaded', `there are ${leasesMax} leases already`, {})
}

export function tooManyWait(waitingMax: number): KvError<'overloaded'> {
  return new KvError('overloaded', `${waitingMax} requests wait for leases already`, {})
}

export function closing(): KvError<'overloaded'> {
  return new KvError('overloaded', 'the server is shutting down', {})
}

function momentOf(unixMs: number): string {
  return new Date(unixMs).toISOString()
}
