import type { SharedCells } from '../store/shared-cells.js'
import type { Timestamp } from '../timestamp.js'
import { expiresAt, type HintedCell, type SharedCell } from './rules/shared-cell.js'

/**
 * Removes the hint of a clean cell, and hints at the time when its version expires.
 * @param hinted as it was read before `cell`, which is still.
 */
export async function forgetClean(
  cells: SharedCells,
  id: Timestamp,
  hinted: HintedCell,
  cell: SharedCell,
  now: Timestamp,
): Promise<void> {
  const expiry = expiresAt(cell, now)
  if (expiry !== undefined) await cells.hintAt(id, hinted.key, expiry)
  await cells.forget(id, hinted)
}
