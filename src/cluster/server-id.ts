import { randomBytes } from 'node:crypto'

const ID_BYTES = 9

/** Of a process that shares a store with others: 12 characters that no other process has, earlier runs included. */
export function newServerId(): string {
  return randomBytes(ID_BYTES).toString('base64url')
}
