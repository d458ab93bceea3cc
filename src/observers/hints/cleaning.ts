import type { HintedCells } from '../../store/hinted-cells.js'
import type { Timestamp } from '../../timestamp.js'
import { expiresAt, type FoundCell, type Hint, type HintedCell } from '../rules/hinted-cell.js'

/**
 * Removes the hint of a clean cell, and leaves a hint for the time when its version expires.
 * @param hinted the hint as it was read before `cell`.
 */
export async function forgetClean(
  cells: HintedCells,
  id: Timestamp,
  hinted: FoundCell,
  cell: HintedCell,
  now: Timestamp,
): Promise<void> {
  const expiry = expiresAt(cell, now)
  if (expiry !== undefined) await cells.hintAt(id, hinted.key, expiry)
  await cells.forget(id, hinted)
}

/** Removes the failure of a dirty cell and writes a hint, because a parked cell has none. */
export async function unpark(
  cells: HintedCells,
  id: Timestamp,
  cell: Pick<HintedCell, 'key' | 'failure'>,
  hint: Omit<Hint, 'value'>,
): Promise<void> {
  const { key } = cell
  // Written twice: a server that finds the cell parked removes the first hint, and after a kill in between the cell would have
  // none.
  await cells.hint(id, key, hint)
  await cells.replaceFailure(id, cell, undefined)
  await cells.hint(id, key, hint)
}
