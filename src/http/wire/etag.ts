import type { IncomingHttpHeaders } from 'node:http'
import { invalid } from '../../errors/kv-error.js'
import type { Timestamp } from '../../timestamp.js'
import type { Check } from '../../txn/check.js'

export function etagOf(commitTs: Timestamp): string {
  return `"${commitTs}"`
}

/** `any` for `*`, otherwise the versions named. Tags that no version can have are left out, since they match nothing. */
type Tags = 'any' | readonly Timestamp[]

export interface Preconditions {
  readonly ifMatch: Tags | undefined
  readonly ifNoneMatch: Tags | undefined
}

const NO_PRECONDITIONS: Preconditions = { ifMatch: undefined, ifNoneMatch: undefined }
/**
 * One element of a list, possibly empty, and the comma after it (RFC 9110, sections 5.6.1 and 8.8.3). The pattern must not have
 * two adjacent runs of white space: backtracking would try every way to split the spaces between them.
 */
const ELEMENT = /[ \t]*(?:(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"[ \t]*)?(?:,|$)/y

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
  const tags: Timestamp[] = []
  let isEmpty = true
  ELEMENT.lastIndex = 0
  while (ELEMENT.lastIndex < text.length) {
    const element = ELEMENT.exec(text)
    if (element === null) throw invalid(header, `${header} must be * or a list of quoted ETags`)
    const [, weak, tag] = element
    if (tag === undefined) continue
    isEmpty = false
    if (/^[1-9]\d{0,15}$/.test(tag) && (weak === undefined || acceptWeak)) tags.push(Number(tag))
  }
  if (isEmpty) throw invalid(header, `${header} names no ETag`)
  return tags
}

/** The conditions of a write as checks, which the transaction decides together with the write. */
export function checksOf(key: Uint8Array, { ifMatch, ifNoneMatch }: Preconditions): Check[] {
  const checks: Check[] = []
  if (ifMatch !== undefined)
    checks.push(ifMatch === 'any' ? { key, exists: true } : { key, exists: true, commitTs: ifMatch })
  if (ifNoneMatch !== undefined)
    checks.push(ifNoneMatch === 'any' ? { key, exists: false } : { key, commitTsNot: ifNoneMatch })
  return checks
}

export function readCondition({ ifMatch, ifNoneMatch }: Preconditions, commitTs: Timestamp): 200 | 304 | 412 {
  if (ifMatch !== undefined && ifMatch !== 'any' && !ifMatch.includes(commitTs)) return 412
  if (ifNoneMatch !== undefined && (ifNoneMatch === 'any' || ifNoneMatch.includes(commitTs))) return 304
  return 200
}
