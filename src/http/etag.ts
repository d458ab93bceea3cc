import type { IncomingHttpHeaders } from 'node:http'
import type { Check } from '../client/one-shot.js'
import { invalid } from '../percolator/errors.js'
import type { Timestamp } from '../percolator/timestamp.js'

/** A version's commit_ts, quoted. */
export function etagOf(commitTs: Timestamp): string {
  return `"${commitTs}"`
}

/** `any` for `*`; else the versions that are named. Tags that no version can have are left out: they match nothing. */
type Tags = 'any' | readonly Timestamp[]

export interface Preconditions {
  readonly ifMatch: Tags | undefined
  readonly ifNoneMatch: Tags | undefined
}

const NO_PRECONDITIONS: Preconditions = { ifMatch: undefined, ifNoneMatch: undefined }
const TAG = /^\s*(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"\s*$/

/** @throws KvError `invalid_argument` for a header that is neither `*` nor a list of quoted tags. */
export function preconditionsOf(headers: IncomingHttpHeaders): Preconditions {
  const { 'if-match': match, 'if-none-match': noneMatch } = headers
  if (match === undefined && noneMatch === undefined) return NO_PRECONDITIONS
  return {
    // If-Match compares strongly: a weak tag matches nothing (RFC 9110, section 13.1.1).
    ifMatch: match === undefined ? undefined : parseTags('if-match', match, false),
    ifNoneMatch: noneMatch === undefined ? undefined : parseTags('if-none-match', noneMatch, true),
  }
}

function parseTags(header: string, text: string, acceptWeak: boolean): Tags {
  if (text.trim() === '*') return 'any'
  return text.split(',').flatMap((part) => {
    const tag = TAG.exec(part)
    if (tag === null) throw invalid(header, `${header} must be * or a list of quoted ETags`)
    const commitTs = /^[1-9]\d{0,15}$/.test(tag[2] ?? '') ? Number(tag[2]) : 0
    return commitTs === 0 || (tag[1] !== undefined && !acceptWeak) ? [] : [commitTs]
  })
}

/** The conditions of a write on `key`, to be checked where it is decided. */
export function checksOf(key: Uint8Array, { ifMatch, ifNoneMatch }: Preconditions): Check[] {
  const checks: Check[] = []
  if (ifMatch !== undefined)
    checks.push(ifMatch === 'any' ? { key, exists: true } : { key, exists: true, commitTs: ifMatch })
  if (ifNoneMatch !== undefined)
    checks.push(ifNoneMatch === 'any' ? { key, exists: false } : { key, commitTsNot: ifNoneMatch })
  return checks
}

/** What a conditional read of a version comes to. */
export function readCondition({ ifMatch, ifNoneMatch }: Preconditions, commitTs: Timestamp): 200 | 304 | 412 {
  if (ifMatch !== undefined && ifMatch !== 'any' && !ifMatch.includes(commitTs)) return 412
  if (ifNoneMatch !== undefined && (ifNoneMatch === 'any' || ifNoneMatch.includes(commitTs))) return 304
  return 200
}
