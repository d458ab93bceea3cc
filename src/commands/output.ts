import { createReadStream } from 'node:fs'
import { type FileHandle, open, rename, unlink } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Readable } from 'node:stream'

/** Output of a command: stdout, or a file that gets its name when it is complete. */
export interface Output {
  write(bytes: Uint8Array): Promise<void>
  /** Completes the output: everything is on disk, under the file's own name. */
  finish(): Promise<void>
  /** Closes an incomplete output. The bytes of a file stay in `.part`. */
  close(): Promise<void>
}

export const STDOUT: Output = {
  /** Waits until the bytes are written: only the callback distinguishes a failed write from one that succeeds later. */
  write(bytes) {
    return new Promise((resolve, reject) =>
      process.stdout.write(bytes, (error) => (error == null ? resolve() : reject(error))),
    )
  },
  async finish() {},
  async close() {},
}

/** A file that is called `FILE.part` until it is complete. */
export class PartFile implements Output {
  readonly #handle: FileHandle
  #length = 0
  #isOpen = true

  private constructor(
    readonly path: string,
    handle: FileHandle,
  ) {
    this.#handle = handle
  }

  static async open(path: string): Promise<PartFile> {
    const part = `${path}.part`
    const handle = await open(part, 'r+').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return open(part, 'wx+')
      throw error
    })
    return new PartFile(path, handle)
  }

  /** Bytes that an earlier run left in `.part`. */
  leftover(): Readable {
    return createReadStream(`${this.path}.part`)
  }

  /** Keeps the first `length` bytes of the leftover, and continues after them. */
  async keep(length: number): Promise<void> {
    await this.#handle.truncate(length)
    this.#length = length
  }

  async write(bytes: Uint8Array): Promise<void> {
    for (let written = 0; written < bytes.length; ) {
      const { bytesWritten } = await this.#handle.write(bytes, written, bytes.length - written, this.#length)
      written += bytesWritten
      this.#length += bytesWritten
    }
  }

  async finish(): Promise<void> {
    await this.#handle.sync()
    this.#isOpen = false
    await this.#handle.close()
    await rename(`${this.path}.part`, this.path)
    const directory = await open(dirname(this.path), 'r')
    await directory.sync().finally(() => directory.close()) // Makes the new name durable.
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return
    this.#isOpen = false
    await this.#handle.close()
    if (this.#length === 0) await unlink(`${this.path}.part`) // There is nothing to continue.
  }
}

/** @param path `-` is stdout. */
export async function openOutput(path: string): Promise<Output> {
  if (path === '-') return STDOUT
  const file = await PartFile.open(path)
  await file.keep(0)
  return file
}
