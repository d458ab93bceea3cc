import type { Engine } from '../engine/engine.js'
import { type LevelTuning, openLevelEngine } from '../engine/level-engine.js'
import { type DirectoryHold, holdDirectory } from './directory-hold.js'
import { makeDirectory } from './make-directory.js'
import { syncDirectory } from './sync-directory.js'

/**
 * Opens a LevelDB as it is; `openVerified` verifies its files first.
 * @param held released when the engine is closed or fails to open.
 * @throws DataDirectoryError; the errors of `openLevelEngine`.
 */
export async function openLevelDb(directory: string, held?: DirectoryHold, tuning?: LevelTuning): Promise<Engine> {
  if (held === undefined) await makeDirectory(directory)
  const hold = held ?? (await holdDirectory(directory))
  try {
    const hooks = { onReopen: () => syncDirectory(directory), onClose: () => hold.release() }
    return await openLevelEngine(directory, hooks, tuning)
  } catch (error) {
    await hold.release()
    throw error
  }
}
