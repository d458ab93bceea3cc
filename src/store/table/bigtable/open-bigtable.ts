import { askOverHttp } from '../../../oracle/ask-over-http.js'
import { Clock } from '../../../oracle/clock.js'
import type { Asks } from '../../../oracle/signed-ask.js'
import { type JoinCallbacks, joinTable, type Member } from '../join-table.js'
import type { TableStore } from '../table-store.js'
import { servingOf } from './format-admin.js'
import { openTable } from './google-client.js'
import type { TableAddress } from './table-address.js'
import { requireSoundTable } from './table-admin.js'

export interface OpenBigtableOptions extends JoinCallbacks {
  readonly address: TableAddress
  readonly onClockStep: (message: string) => void
  readonly onUnknownCluster: (message: string) => void
}

/**
 * @throws BigtableMissing; UnusableTable when the table can't be served from; KvError `storage_unavailable` when Bigtable
 *   does not answer.
 */
export async function openBigtable(options: OpenBigtableOptions): Promise<{ store: TableStore; member: Member }> {
  const { address, onClockStep, onUnknownCluster } = options
  await requireSoundTable(address)
  const serving = await servingOf(address, onUnknownCluster)
  const asksOf = (secret: Uint8Array): Asks => askOverHttp({ secret })
  return joinTable(await openTable(address), { ...options, serving, asksOf, clock: new Clock({ onStep: onClockStep }) })
}
