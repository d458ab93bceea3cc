import { type FileHandle, open } from 'node:fs/promises'
import { createServer, type Server } from 'node:net'
import { DataDirectoryError } from '../data-directory-error.js'

export interface DirectoryHold {
  release(): Promise<void>
}

/** Length of `sun_path`. Some versions of Node pad shorter names and some do not, so these would be different names. */
const NAME_BYTES = 108

/**
 * LevelDB locks the file LOCK, so deleting that file lets a second process in. This lock is an abstract socket of Linux, named
 * after the directory's inode. It leaves no file, and the kernel releases the name when the process ends, however it ends. On
 * other systems, and between containers with separate networks, only LevelDB's lock is left, and `OwnFiles` makes up for that.
 * @throws DataDirectoryError when another process holds the directory.
 */
export async function holdDirectory(directory: string): Promise<DirectoryHold> {
  if (process.platform !== 'linux') return NOTHING_HELD
  // An open directory keeps its inode number, even when it is deleted and made again.
  const handle = await open(directory, 'r').catch(() => undefined)
  if (handle === undefined) return NOTHING_HELD // Opening LevelDB will report the error.
  try {
    const { dev, ino } = await handle.stat({ bigint: true })
    const server = await listenOn(`\0perkv/${dev}/${ino}`.padEnd(NAME_BYTES, '.'))
    return holdOf(handle, server)
  } catch (error) {
    await handle.close()
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE')
      throw new DataDirectoryError(`the data directory ${directory} is in use by another process`)
    return NOTHING_HELD // A sandbox may have no such sockets.
  }
}

export async function requireUnheld(directory: string): Promise<void> {
  const hold = await holdDirectory(directory)
  await hold.release()
}

const NOTHING_HELD: DirectoryHold = { release: async () => {} }

function listenOn(path: string): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy())
    server.once('error', reject).listen({ path }, () => resolve(server.unref()))
  })
}

function holdOf(handle: FileHandle, server: Server): DirectoryHold {
  let releasing: Promise<void> | undefined
  const release = async (): Promise<void> => {
    await new Promise((resolve) => server.close(resolve))
    await handle.close()
  }
  return {
    release() {
      releasing ??= release()
      return releasing
    },
  }
}
