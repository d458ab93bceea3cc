import { KvError } from '../../../errors/kv-error.js'
import { TABLE_WAIT_MS_MAX } from '../../../limits.js'
import type {
  Changed,
  ColumnRange,
  Expected,
  RowsRequest,
  RowWrite,
  Table,
  TableRow,
  WalkedRows,
  WalkRequest,
} from '../layout/table.js'
import { BIGTABLE } from './bigtable.js'
import {
  callOptions,
  type DataClient,
  drain,
  openDataClient,
  type ReadRowsAnswer,
  streamOptions,
} from './google-package.js'
import { DEADLINE_EXCEEDED, grpcCode, isCertain, unavailable } from './grpc-failures.js'
import { CALL_MS, Patience } from './patience.js'
import { RowChunks } from './row-chunks.js'
import { filterOf, mutationOf, predicateOf } from './row-filters.js'
import { beyond, keyBytes, type RowSet, requestsOf, rowSetMessage, rowSetOf } from './row-set.js'
import { type TableAddress, tableName } from './table-address.js'

export interface TableOptions {
  readonly waitMs?: number
}

/**
 * Opens a table of Cloud Bigtable with Google's client. BIGTABLE_EMULATOR_HOST, `host:port`, names another server.
 * @throws BigtableMissing; BigtableSetupError without credentials. `requireSoundTable` checks whether the table exists.
 */
export async function openTable(address: TableAddress, options: TableOptions = {}): Promise<Table> {
  return new GoogleTable(await openDataClient(), address, options)
}

type CallKind = keyof Table['calls']

const REQUESTS_AT_ONCE = 4
/**
 * Shares of the rows that a walk is shown although it does not look for them. With a limit of 256 rows and a share of 1/64 a call
 * ends after some 16,000 rows, whatever it finds.
 */
const SAMPLED = [0, 1 / 64, 1 / 8]
/** So long walks are shown such rows after a call without progress. Bigtable may only have been slow. */
const SAMPLED_MS = 600_000

/** What one call reads. */
interface Wanted extends Pick<WalkRequest, 'columns' | 'orBare' | 'reverse'> {
  readonly limit?: number | undefined
}

interface PartRead {
  readonly rows: readonly TableRow[]
  readonly left: RowSet
}

class GoogleTable implements Table {
  readonly engine = BIGTABLE
  readonly calls = { read: 0, change: 0 }
  readonly inFlight = { calls: 0, bytes: 0 }
  readonly #client: DataClient
  readonly #on: { readonly tableName: string; readonly appProfileId: string }
  readonly #waitMs: number
  #sampled = 0
  /** By the monotonic clock. */
  #sampledUntilMs = 0
  #isClosed = false

  constructor(client: DataClient, address: TableAddress, { waitMs = TABLE_WAIT_MS_MAX }: TableOptions) {
    this.#client = client
    this.#on = { tableName: tableName(address), appProfileId: address.appProfile ?? '' }
    this.#waitMs = waitMs
  }

  async rows(request: RowsRequest): Promise<readonly TableRow[]> {
    const { columns, limit = Number.POSITIVE_INFINITY } = request
    if (columns.length === 0 || limit === 0) return []
    const requests = requestsOf(rowSetOf(request))
    const [only] = requests
    if (only === undefined) return []
    if (requests.length === 1) return this.#readAll(only, columns, limit)
    const found: TableRow[] = []
    for (let i = 0; i < requests.length && found.length < limit; i += REQUESTS_AT_ONCE) {
      const some = requests.slice(i, i + REQUESTS_AT_ONCE)
      const answers = await Promise.all(some.map((set) => this.#readAll(set, columns, limit)))
      for (const rows of answers) for (const row of rows) found.push(row)
    }
    return found.slice(0, limit)
  }

  async #readAll(set: RowSet, columns: readonly ColumnRange[], limit: number): Promise<readonly TableRow[]> {
    const found: TableRow[] = []
    for (let left = set; left.length > 0 && found.length < limit; ) {
      const part = await this.#read(left, { columns, limit: limit - found.length })
      for (const row of part.rows) found.push(row)
      left = part.left
    }
    return found
  }

  async walk({ range, ...wanted }: WalkRequest): Promise<WalkedRows> {
    const { rows, left } = await this.#read(rowSetOf({ ranges: [range] }), wanted)
    return { rows, left: left[0] }
  }

  /** Reads until the limit, or as far as the first call comes that makes any progress. */
  async #read(set: RowSet, wanted: Wanted): Promise<PartRead> {
    const { columns, orBare, limit = Number.POSITIVE_INFINITY, reverse = false } = wanted
    const rowsLimit = Number.isFinite(limit) ? limit : 0
    const isWalk = set.some(({ isKey }) => !isKey)
    if (performance.now() >= this.#sampledUntilMs) this.#sampled = 0
    const patience = new Patience(this.#waitMs)
    for (;;) {
      const chunks = new RowChunks()
      const filter = filterOf(columns, orBare, isWalk ? SAMPLED[this.#sampled] : 0)
      let scanned: Buffer | undefined
      const take = (answer: ReadRowsAnswer): void => {
        for (const chunk of answer.chunks) chunks.add(chunk)
        if (answer.lastScannedRowKey.length > 0) scanned = answer.lastScannedRowKey
      }
      try {
        const query = { ...this.#on, rows: rowSetMessage(set), filter, rowsLimit, reversed: reverse }
        await this.#counted('read', keyBytes(set), () =>
          drain(this.#client.readRows(query, streamOptions(patience.callMs)), take),
        )
        chunks.end()
        const { rows, lastKey, count } = chunks
        return { rows, left: lastKey === undefined || count < limit ? [] : beyond(set, lastKey, reverse) }
      } catch (error) {
        // Rows received before a failure are whole.
        const { rows, lastKey } = chunks
        let left = set
        for (const key of [lastKey, scanned]) if (key !== undefined) left = beyond(left, key, reverse)
        if (left !== set) return { rows, left }
        // Bigtable need not say by itself how far a read has come.
        if (isWalk && grpcCode(error) === DEADLINE_EXCEEDED) {
          this.#sampled = Math.min(this.#sampled + 1, SAMPLED.length - 1)
          this.#sampledUntilMs = performance.now() + SAMPLED_MS
        }
        await patience.after(error)
      }
    }
  }

  async change(
    key: Buffer,
    expected: Expected,
    writes: readonly RowWrite[] | 'remove',
    withinMs = this.#waitMs,
  ): Promise<Changed> {
    const isAbsent = expected.value === undefined
    const mutations = writes === 'remove' ? [{ deleteFromRow: {} }] : writes.map(mutationOf)
    const request = {
      ...this.#on,
      rowKey: key,
      predicateFilter: predicateOf(expected),
      ...(isAbsent ? { falseMutations: mutations } : { trueMutations: mutations }),
    }
    const bytes = (writes === 'remove' ? key.length : mutationBytes(key, writes)) + (expected.value?.length ?? 0)
    try {
      const [{ predicateMatched }] = await this.#counted('change', bytes, () =>
        this.#client.checkAndMutateRow(request, callOptions(Math.min(CALL_MS, this.#waitMs, withinMs))),
      )
      return predicateMatched === isAbsent ? 'refused' : 'done'
    } catch (error) {
      if (isCertain(error)) throw unavailable(error)
      return 'unknown'
    }
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    await this.#client.close()
  }

  async #counted<T>(kind: CallKind, bytes: number, call: () => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new KvError('storage_unavailable', 'Bigtable: the table is closed', {})
    this.calls[kind]++
    this.inFlight.calls++
    this.inFlight.bytes += bytes
    try {
      return await call()
    } finally {
      this.inFlight.calls--
      this.inFlight.bytes -= bytes
    }
  }
}

function mutationBytes(key: Buffer, writes: readonly RowWrite[]): number {
  return writes.reduce((sum, { qualifier, value }) => sum + (qualifier?.length ?? 0) + (value?.length ?? 0), key.length)
}
