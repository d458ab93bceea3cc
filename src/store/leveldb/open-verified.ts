import { START_VERIFY_BYTES_MAX } from '../../limits.js'
import { type Engine, openLevelDb } from './engine.js'
import { requireSound, requireUnlocked } from './sound-directory.js'

/**
 * Opens a LevelDB whose files were verified before. Tables that are too large together to be read now are left to the scrub.
 * @throws DataDirectoryError
 */
export async function openVerified(directory: string): Promise<Engine> {
  await requireUnlocked(directory)
  await requireSound(directory, START_VERIFY_BYTES_MAX)
  return openLevelDb(directory)
}
