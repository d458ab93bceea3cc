import { keyText } from '../bytes/key-text.js'
import type { Timestamp } from '../timestamp.js'
import { ID_BYTES, idIn, idText } from './id-text.js'
import type { SystemName } from './system-records.js'

const ATTACHED = 'attached/' satisfies SystemName
/** Above the records of all fences: the character after the slash. */
export const ATTACHED_END = 'attached0' as SystemName

/** `attached/`, the fence of a lease as 8 bytes big endian, and a key that may be attached to it. */
export function attachedName(fence: Timestamp, key: Uint8Array): SystemName {
  return `${attachedPrefix(fence)}${keyText(key)}`
}

/** Below all names of this fence, and above those of lower ones. It is no name itself, and stands for all of them in a `Claim`. */
export function attachedPrefix(fence: Timestamp): SystemName {
  return `${ATTACHED}${idText(fence)}`
}

/** @returns undefined when the name is too short to have a fence. */
export function fenceOfAttached(name: SystemName): Timestamp | undefined {
  return idIn(name, ATTACHED.length)
}

export function keyOfAttached(name: SystemName): Buffer {
  return Buffer.from(name.slice(ATTACHED.length + ID_BYTES), 'latin1')
}
