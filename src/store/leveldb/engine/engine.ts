export type EngineOp =
  | { readonly type: 'put'; readonly key: Buffer; readonly value: Buffer }
  | { readonly type: 'del'; readonly key: Buffer }

export interface EngineRange {
  readonly gte: Buffer
  readonly lt: Buffer
  readonly reverse?: boolean
  readonly values?: boolean
}

export interface EngineIterator {
  /** @returns the next `size` entries; fewer only at the end of the range. */
  nextv(size: number): Promise<[Buffer, Buffer][]>
  close(): Promise<void>
}

export interface EngineReader {
  get(key: Buffer): Promise<Buffer | undefined>
  getMany(keys: Buffer[]): Promise<(Buffer | undefined)[]>
  /** The iterator sees the database as of this call. */
  iterator(range: EngineRange): EngineIterator
}

export interface TableLevel {
  readonly level: number
  readonly files: number
  readonly bytes: number
}

/** The calls of LevelDB that the store uses. Tests replace it to make the disk fail. */
export interface Engine extends EngineReader {
  /** Blocks the event loop, at worst for a read from disk. */
  getSync(key: Buffer): Buffer | undefined
  /** Writes one atomic batch. With `sync` it is on disk when the promise is fulfilled. */
  write(ops: readonly EngineOp[], sync: boolean): Promise<void>
  snapshot(): EngineReader & { close(): Promise<void> }
  compactRange(start: Buffer, end: Buffer): Promise<void>
  /** Approximate bytes on disk, without records that are only in memory and the log. */
  approximateSize(start: Buffer, end: Buffer): Promise<number>
  levels?(): readonly TableLevel[]
  /** Rejects when the disk has no room for `reopen`, which would fail and leave the database closed. */
  requireRoom(): Promise<void>
  /** Closes and opens the database, which decides whether a failed write is on disk. */
  reopen(): Promise<void>
  close(): Promise<void>
}

export async function readPage(engine: EngineReader, range: EngineRange, size: number): Promise<[Buffer, Buffer][]> {
  const iterator = engine.iterator(range)
  try {
    return await iterator.nextv(size)
  } finally {
    await iterator.close()
  }
}

/**
 * Reads a range in pages of `size` entries; the last page may be shorter. Leaving the loop early closes the iterator.
 * @param first size of the first page, for callers that seldom need more.
 */
export async function* pagesOf(
  engine: EngineReader,
  range: EngineRange,
  size: number,
  first = size,
): AsyncGenerator<[Buffer, Buffer][], void> {
  const iterator = engine.iterator(range)
  try {
    for (let wanted = first; ; wanted = size) {
      const page = await iterator.nextv(wanted)
      if (page.length > 0) yield page
      if (page.length < wanted) return
    }
  } finally {
    await iterator.close()
  }
}
