import { BIGTABLE } from '../store/table/bigtable/bigtable.js'
import { isTableAddress, parseTableAddress, printTableAddress } from '../store/table/bigtable/table-address.js'
import type { AcceptedLoss } from '../store/table/check/accept-loss.js'
import type { CheckedTable, CheckTableOptions } from '../store/table/check/check-table.js'
import type { JoinCallbacks, Member } from '../store/table/join-table.js'
import type { TableEngine } from '../store/table/layout/table.js'
import { POSTGRES } from '../store/table/postgres/postgres.js'
import { isPostgresAddress, parsePostgresAddress } from '../store/table/postgres/postgres-address.js'
import type { TableStore } from '../store/table/table-store.js'

type OnWarning = (message: string) => void

interface OpenTableOptions extends JoinCallbacks {
  readonly onClockStep: OnWarning
  /** Called with one line about settings of the table's service. */
  readonly onWarning: OnWarning
}

export interface InitializedTable {
  /** undefined: nothing was changed. */
  readonly made: string | undefined
  /** Bigtable's cluster that all servers use. */
  readonly cluster?: string | undefined
  /** What servers need, in one line. */
  readonly needs?: string | undefined
}

/** A table that servers share, of any engine. Calls load the client of its engine, and throw as `open-*.ts` of that says. */
export interface SharedTable {
  readonly engine: TableEngine
  /** Its address, for people, without a password. */
  readonly place: string
  open(options: OpenTableOptions): Promise<{ store: TableStore; member: Member }>
  init(onWarning: OnWarning): Promise<InitializedTable>
  upgrade(onWarning: OnWarning): Promise<{ readonly from: number; readonly to: number }>
  check(options: Omit<CheckTableOptions, 'serving'>): Promise<CheckedTable>
  /** Lets servers serve a table that lacks what they had committed. */
  accept(onProgress: (rows: number) => void): Promise<AcceptedLoss>
  /** Absent: the engine has no clusters. */
  move?(onWarning: OnWarning): Promise<{ readonly from: string | undefined; readonly to: string }>
}

/** @returns undefined for what is no address of a table. @throws UnusableTable for one that is wrong. */
export function sharedTableAt(text: string): SharedTable | undefined {
  if (isTableAddress(text)) return bigtableAt(text)
  return isPostgresAddress(text) ? postgresAt(text) : undefined
}

function bigtableAt(text: string): SharedTable {
  const address = parseTableAddress(text)
  const admin = () => import('../store/table/bigtable/format-admin.js')
  return {
    engine: BIGTABLE,
    place: printTableAddress(address),
    async open({ onWarning: onUnknownCluster, ...options }) {
      const { openBigtable } = await import('../store/table/bigtable/open-bigtable.js')
      return openBigtable({ ...options, address, onUnknownCluster })
    },
    async init(onWarning) {
      const { table, families, format } = await (await admin()).initTable(address, onWarning)
      return {
        made: table ? 'the table' : families.length > 0 ? `the families ${families.join(', ')}` : undefined,
        cluster: format.cluster,
        needs:
          'Servers need an app profile with single-cluster routing that allows single-row transactions. This one does.',
      }
    },
    upgrade: async (onWarning) => (await admin()).upgradeTableAt(address, onWarning),
    move: async (onWarning) => (await admin()).moveTableAt(address, onWarning),
    check: async (options) => (await import('../store/table/bigtable/open-check.js')).checkTableAt(address, options),
    accept: async (onRows) => (await import('../store/table/bigtable/open-check.js')).acceptLossAt(address, onRows),
  }
}

function postgresAt(text: string): SharedTable {
  const address = parsePostgresAddress(text)
  const load = () => import('../store/table/postgres/open-postgres.js')
  return {
    engine: POSTGRES,
    place: address.place,
    open: async (options) => (await load()).openPostgres({ ...options, address }),
    async init(onWarning) {
      const { isMade } = await (await load()).initTable(address, onWarning)
      return { made: isMade ? 'the table' : undefined }
    },
    upgrade: async () => (await load()).upgradeTableAt(address),
    check: async (options) => (await load()).checkTableAt(address, options),
    accept: async (onProgress) => (await load()).acceptLossAt(address, onProgress),
  }
}
