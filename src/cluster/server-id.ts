import { randomBytes } from 'node:crypto'

const ID_BYTES = 9

export function newServerId(): string {
  return randomBytes(ID_BYTES).toString('base64url')
}
