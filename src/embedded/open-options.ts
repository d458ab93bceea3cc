import { kind, oneOf, optionsOf, WAIT_MS, wholeUpTo } from '../client/options.js'
import { BLOCK_CACHE_BYTES_MAX } from '../limits.js'
import { DURABILITIES, type Durability } from '../store/durability.js'

export interface OpenOptions {
  /**
   * `sync` (default): a write is acknowledged after its fsync. `1s`: the fsync follows within a second; `async`: when the system sees
   * fit. A crash of the machine may lose what is not synced.
   */
  readonly durability?: Durability | undefined
  /** Size of the cache of newest versions in bytes. Default 64 MiB. */
  readonly cacheBytesMax?: number | undefined
  /** Size of LevelDB's cache of uncompressed blocks in bytes. Default 8 MiB. */
  readonly blockCacheBytes?: number | undefined
  /** For blocks that are written from now on. Default `snappy`. */
  readonly compression?: 'snappy' | 'none' | undefined
  /** Longest wait of a call for the locks of other transactions, in milliseconds, unless the call sets its own. Default 3000. */
  readonly lockWaitMs?: number | undefined
  /**
   * Time in milliseconds for which overwritten and deleted versions stay readable. Default 10 minutes; Infinity keeps them for
   * ever.
   */
  readonly versionsMs?: number | undefined
  /** Longest key in bytes. Default 4096, at most 8192. */
  readonly keyBytesMax?: number | undefined
  /** Longest value in bytes. Default 1 MiB, at most 256 MiB. */
  readonly valueBytesMax?: number | undefined
  /**
   * Called for problems that fail no call: the clock steps, a collection of old versions fails, files are damaged. Default:
   * `process.emitWarning`.
   */
  readonly onWarning?: ((message: string) => void) | undefined
}

const MIB = 2 ** 20

export const openOptions = optionsOf<OpenOptions>('open', {
  durability: oneOf(...DURABILITIES),
  cacheBytesMax: wholeUpTo(0, 2 ** 40),
  blockCacheBytes: wholeUpTo(0, BLOCK_CACHE_BYTES_MAX),
  compression: oneOf('snappy', 'none'),
  lockWaitMs: WAIT_MS,
  // Whole, because the safe point is: part of a millisecond would make an invalid timestamp, which would be stored.
  versionsMs: kind('a whole number of milliseconds above 0, or Infinity', (value) => {
    return value === Number.POSITIVE_INFINITY || (Number.isSafeInteger(value) && Number(value) > 0)
  }),
  keyBytesMax: wholeUpTo(1, 8192),
  valueBytesMax: wholeUpTo(1, 256 * MIB),
  onWarning: kind('a function', (value) => typeof value === 'function'),
})
