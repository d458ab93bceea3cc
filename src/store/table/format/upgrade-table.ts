import { livingServers } from '../../../cluster/living-servers.js'
import type { RegistryRows } from '../../../cluster/registry-rows.js'
import type { Table } from '../layout/table.js'
import { UnusableTable } from '../layout/unusable-table.js'
import { changeFormat, requireFit, type Serving } from './format-row.js'

/**
 * Raises the format of a table to the newest one that this program serves. Servers that know it begin to use it; others end.
 * @param servers of the table. @param pause long enough for one of them to count as dead.
 * @returns the format before.
 * @throws UnusableTable while a server lives that does not know the newest format; KvError `storage_unavailable`
 */
export async function upgradeTable(
  table: Table,
  servers: Pick<RegistryRows, 'list'>,
  serving: Serving,
  pause: () => Promise<void>,
): Promise<number> {
  const { place, newest } = serving
  const found = await requireFit(table, serving)
  if (found.format === newest.format) return found.format
  const older = await livingServers(servers, pause, (record) => (record?.format ?? 0) < newest.format)
  if (older.length > 0) {
    const urls = older.map(({ id, record }) => record?.url ?? id).join(', ')
    throw new UnusableTable(
      `${place}: the table has servers that do not know format ${newest.format}, and it would end them: first start ${newest.program} or later in place of ${urls}`,
    )
  }
  const raised = await changeFormat(table, found, { ...found, ...newest })
  if (raised === undefined) throw new UnusableTable(`${place}: the format was changed meanwhile: repeat the command`)
  return found.format
}
