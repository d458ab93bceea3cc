import { randomBytes } from 'node:crypto'

const SECRET_BYTES = 16
const OF_SERVER = /^([\w-]{8,36})\.[\w-]{22}$/

/**
 * A secret: without tokens, everyone who knows it may use the transaction. @param server id of the transaction's server
 * when there are several.
 */
export function newTxnId(server: string | undefined): string {
  const secret = randomBytes(SECRET_BYTES).toString('base64url')
  return server === undefined ? secret : `${server}.${secret}`
}

/** @returns id of the transaction's server; undefined when there is only one server, or the text is no such id. */
export function serverOfTxn(txn: string): string | undefined {
  return OF_SERVER.exec(txn)?.[1]
}
