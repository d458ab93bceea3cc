import { randomBytes } from 'node:crypto'

const SECRET_BYTES = 16
const OF_SERVER = /^([\w-]{8,36})\.[\w-]{22}$/

/** Whoever knows it may use the transaction, where there are no tokens. @param server in which the transaction lives, where there are several. */
export function newTxnId(server: string | undefined): string {
  const secret = randomBytes(SECRET_BYTES).toString('base64url')
  return server === undefined ? secret : `${server}.${secret}`
}

/** @returns id of the server; undefined for a text that no server of several has made. */
export function serverOfTxn(txn: string): string | undefined {
  return OF_SERVER.exec(txn)?.[1]
}
