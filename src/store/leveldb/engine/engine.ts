export type EngineOp =
  | { readonly type: 'put'; readonly key: Buffer; readonly value: Buffer }
  | { readonly type: 'del'; readonly key: Buffer }

export interface EngineRange {
  readonly gte: Buffer
  readonly lt: Buffer
  readonly reverse?: boolean
  /** Fill the values in; false reads keys alone. Default true. */
  readonly values?: boolean
}

export interface EngineIterator {
  /** The next `size` entries; fewer only at the end of the range. */
  nextv(size: number): Promise<[Buffer, Buffer][]>
  close(): Promise<void>
}

/** Reads of one moment. */
export interface EngineReader {
  get(key: Buffer): Promise<Buffer | undefined>
  getMany(keys: Buffer[]): Promise<(Buffer | undefined)[]>
  /** Sees the database as it is at this call. */
  iterator(range: EngineRange): EngineIterator
}

/** What the store needs of LevelDB, and all that a test has to put in its place to make the disk fail. */
export interface Engine extends EngineReader {
  /** Blocks the event loop, on the disk at worst. */
  getSync(key: Buffer): Buffer | undefined
  /** One atomic batch; with `sync`, on disk when the promise is fulfilled. */
  write(ops: readonly EngineOp[], sync: boolean): Promise<void>
  snapshot(): EngineReader & { close(): Promise<void> }
  compactRange(start: Buffer, end: Buffer): Promise<void>
  /** Bytes on disk, about; what has not left memory for a table file yet counts for nothing. */
  approximateSize(start: Buffer, end: Buffer): Promise<number>
  /** Rejects where the disk has no room for `reopen`, which would leave the database closed. */
  requireRoom(): Promise<void>
  /** Closes and opens again: after a failed write this is what settles whether it is on disk. */
  reopen(): Promise<void>
  close(): Promise<void>
}

/** The first `size` entries of a range; fewer only where it has no more. */
export async function readPage(engine: EngineReader, range: EngineRange, size: number): Promise<[Buffer, Buffer][]> {
  const iterator = engine.iterator(range)
  try {
    return await iterator.nextv(size)
  } finally {
    await iterator.close()
  }
}

/**
 * A range in pages of `size` entries, the last one shorter; leaving the loop early closes the iterator too.
 * @param first the size of the first page, where it is likely to be enough.
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
