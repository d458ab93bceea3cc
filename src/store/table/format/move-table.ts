import { livingServers } from '../../../cluster/living-servers.js'
import type { RegistryRows } from '../../../cluster/registry-rows.js'
import type { Table } from '../layout/table.js'
import { UnusableTable } from '../layout/unusable-table.js'
import { changeFormat, FIRST_FORMAT, newerFormat, type Serving, soundFormat } from './format-row.js'

export interface MoveOptions {
  readonly servers: Pick<RegistryRows, 'list'>
  /** Returns when every cluster has what was written before the call. */
  readonly replicated: () => Promise<void>
  /** Long enough for a server to count as dead. */
  readonly pause: () => Promise<void>
}

/**
 * Makes another cluster of Bigtable the one that all servers use.
 * @param table through an app profile that routes to that cluster. @param serving with that cluster.
 * @returns the cluster before; undefined: it was unknown.
 * @throws UnusableTable while a server lives, or when the row of the format is damaged; KvError `storage_unavailable`
 */
export async function moveTable(
  table: Table,
  serving: Serving & { readonly cluster: string },
  { servers, replicated, pause }: MoveOptions,
): Promise<string | undefined> {
  const { place, cluster } = serving
  await replicated()
  // Twice: a server that lived during the pause has changed its row, and the second wait brings the change here.
  const living = await livingServers(servers, async () => {
    await pause()
    await replicated()
  })
  if (living.length > 0) {
    const urls = living.map(({ id, record }) => record?.url ?? id).join(', ')
    throw new UnusableTable(`${place}: the table is moved only while nobody serves it: stop ${urls}`)
  }
  const found = await soundFormat(table, serving)
  const newer = found && newerFormat(found, serving)
  if (newer !== undefined) throw new UnusableTable(newer)
  if (found?.cluster === cluster) return cluster
  const moved = await changeFormat(table, found, { ...(found ?? FIRST_FORMAT), cluster })
  if (moved === undefined) throw new UnusableTable(`${place}: the cluster was changed meanwhile: repeat the command`)
  return found?.cluster
}
