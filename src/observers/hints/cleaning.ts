import type { HintedCells } from '../../store/hinted-cells.js'
import type { Timestamp } from '../../timestamp.js'
import { expiresAt, type FoundCell, type Hint, type HintedCell } from '../rules/hinted-cell.js'

/**
 * Removes the hint of a clean cell, and hints at the time when its version expires.
 * @param hinted as it was read before `cell`, which is still.
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

/** Removes the failure of a cell that is dirty, and hints at it, since a parked one has no hint. */
export async function unpark(
  cells: HintedCells,
  id: Timestamp,
  cell: Pick<HintedCell, 'key' | 'failure'>,
  hint: Omit<Hint, 'value'>,
): Promise<void> {
  const { key } = cell
  // Twice: a look that finds the cell parked removes the first, and a kill in between must not leave the cell without one.
  await cells.hint(id, key, hint)
  await cells.replaceFailure(id, cell, undefined)
  await cells.hint(id, key, hint)
}
