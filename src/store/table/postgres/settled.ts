/** SQL of the transaction that has locked or replaced a row of the table which the statement still sees; with its snapshot. */
export const UNDER_WAY = `convert_to(xmax::text || ' ' || txid_current_snapshot()::text, 'UTF8')`
/** In place of the family. */
export const UNDER_WAY_FAMILY = '?'

const XIDS = 1n << 32n

/**
 * The transaction that holds a row, if it had not ended when the statement took its snapshot. Whoever had ended before did not
 * change the row, since the statement would see that. The snapshot lists those that run only below its end, which is the first
 * that is younger than all that have ended: what is not below may have run long before, or have begun since, which harms nobody.
 * @param text `xmax`, a space, and the snapshot as `xmin:xmax:xip,xip`.
 */
export function underWay(text: string): string | undefined {
  const [holder = '', snapshot = ''] = text.split(' ')
  if (holder === '0') return undefined // Nobody has held it.
  const [, end = '0', listed = ''] = snapshot.split(':')
  const running = listed.split(',').filter((xid) => xid !== '')
  // `xmax` is shown without its epoch. No transaction is further from another than half of a round.
  const isBelow = BigInt.asUintN(32, BigInt(holder) - BigInt(end)) >= XIDS / 2n
  return !isBelow || running.some((xid) => BigInt(xid) % XIDS === BigInt(holder)) ? holder : undefined
}
