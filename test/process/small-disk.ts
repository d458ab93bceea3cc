import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { open, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** A file system of its own, as a directory. */
export interface SmallDisk {
  readonly path: string
  /** Takes all the room but `freeBytes`, rounded to pages. */
  fill(freeBytes: number): Promise<void>
  /** Gives back what `fill` took. */
  free(): Promise<void>
  remount(options: 'ro' | 'rw'): void
}

/** @throws where this process may not mount. */
function mountTmpfs(mebibytes: number): string {
  const path = mkdtempSync(join(tmpdir(), 'perkv-disk-'))
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${mebibytes}m`, 'tmpfs', path], { stdio: 'pipe' })
    return path
  } catch (error) {
    rmSync(path, { recursive: true })
    throw error
  }
}

function unmount(path: string): void {
  execFileSync('umount', ['--lazy', path], { stdio: 'pipe' })
  rmSync(path, { recursive: true })
}

/** Why tests that need a disk of their own are skipped here; undefined where they run. */
export const noSmallDisk = ((): string | undefined => {
  try {
    unmount(mountTmpfs(1))
    return undefined
  } catch (error) {
    return `a tmpfs cannot be mounted: ${String((error as Error).message).split('\n')[1] ?? error}`
  }
})()

export async function withSmallDisk<T>(mebibytes: number, body: (disk: SmallDisk) => Promise<T>): Promise<T> {
  const path = mountTmpfs(mebibytes)
  const ballast = join(path, 'ballast')
  const disk: SmallDisk = {
    path,
    async fill(freeBytes) {
      const reserve = join(path, 'reserve')
      await writeFile(reserve, Buffer.alloc(freeBytes))
      const file = await open(ballast, 'w')
      try {
        for (let size = 1024 * 1024; size >= 4096; )
          await file.writeFile(Buffer.alloc(size)).catch(() => {
            size /= 2
          })
      } finally {
        await file.close()
      }
      await rm(reserve)
    },
    free: () => rm(ballast, { force: true }),
    remount: (options) => void execFileSync('mount', ['-o', `remount,${options}`, path], { stdio: 'pipe' }),
  }
  try {
    return await body(disk)
  } finally {
    unmount(path)
  }
}
