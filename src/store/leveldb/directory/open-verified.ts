import { dirname, resolve } from 'node:path'
import { START_VERIFY_BYTES_MAX } from '../../../limits.js'
import type { Engine } from '../engine/engine.js'
import type { LevelTuning } from '../engine/level-engine.js'
import { requireSoundDirectory, requireUnlocked } from '../files/sound-directory.js'
import { holdDirectory } from './directory-hold.js'
import { makeDirectory } from './make-directory.js'
import { isHalfMade, removeHalfMade } from './never-used.js'
import { openLevelDb } from './open-level-db.js'
import { requireOwn } from './require-own.js'
import { syncDirectory } from './sync-directory.js'

/**
 * Verifies the files of a LevelDB, then opens it. Leaves tables that are too large together to the scrub.
 * @throws DataDirectoryError
 */
export async function openVerified(directory: string, tuning?: LevelTuning): Promise<Engine> {
  await makeDirectory(directory)
  const hold = await holdDirectory(directory)
  try {
    await requireOwn(directory)
    await requireUnlocked(directory)
    if (await isHalfMade(directory)) await removeHalfMade(directory)
    await requireSoundDirectory(directory, START_VERIFY_BYTES_MAX)
  } catch (error) {
    await hold.release()
    throw error
  }
  const engine = await openLevelDb(directory, hold, tuning)
  try {
    // LevelDB does not fsync the names of its new CURRENT and log. They must be on disk before anything is acknowledged.
    await syncDirectory(directory)
    await syncDirectory(dirname(resolve(directory)))
    return engine
  } catch (error) {
    await engine.close()
    throw error
  }
}
