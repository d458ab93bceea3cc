import { isLeaseName, LEASE_NAME } from '../leases/rules/lease.js'
import { isName, NAME } from '../percolator/name.js'

/** The names `.` and `..` are refused, because URLs cannot carry them. @throws TypeError */
export function requireName(of: 'observer' | 'consumer', name: string): void {
  if (typeof name === 'string' && isName(name) && name !== '.' && name !== '..') return
  throw new TypeError(`the name of ${of === 'observer' ? 'an' : 'a'} ${of} must ${NAME.rule}`)
}

export function requireLeaseName(name: string): void {
  if (typeof name === 'string' && isLeaseName(name) && name !== '.' && name !== '..') return
  throw new TypeError(`the name of a lease must ${LEASE_NAME.rule}`)
}
