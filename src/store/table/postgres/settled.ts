/** SQL of the transaction that has locked or replaced a row of the table which the statement still sees; with its snapshot. */
export const UNDER_WAY = `convert_to(xmax::text || ' ' || pg_current_snapshot()::text, 'UTF8')`
/** In place of the family. */
export const UNDER_WAY_FAMILY = '?'

const XIDS = 1n << 32n

/**
 * The transaction that holds a row, if it was under way when the statement took its snapshot. Whoever began later takes its
 * commit_ts later as well, so it does not matter to the read; whoever had ended before did not change the row, since the
 * statement would see that.
 * @param text `xmax`, a space, and the snapshot as `xmin:xmax:xip,xip`.
 */
export function underWay(text: string): string | undefined {
  const [holder = '', snapshot = ''] = text.split(' ')
  const running = (snapshot.split(':')[2] ?? '').split(',').filter((xid) => xid !== '')
  // `xmax` is shown without its epoch.
  return running.some((xid) => BigInt(xid) % XIDS === BigInt(holder)) ? holder : undefined
}
