import { sleep } from '../event-loop/sleep.js'
import type { RegistryRows } from './registry-rows.js'
import { decodeServer, type ServerRecord } from './server-record.js'
import { DEAD_MS, isSame } from './sightings.js'

export interface LivingServer {
  readonly id: string
  /** undefined: its row is damaged. */
  readonly record: ServerRecord | undefined
}

/** The pause of a command. Servers beat every 2 s, and one that stands still for `DEAD_MS` counts as dead. */
export function untilDead(): Promise<void> {
  return sleep(DEAD_MS + 2000)
}

/**
 * The servers of a table as seen by a command, which is none of them. A server is alive if its row changes while the command
 * pauses. Rows that killed servers have left stay as they are.
 * @param isMeant which servers to look for. There is no pause when there is no row of one.
 * @param pause long enough for a server to count as dead.
 */
export async function livingServers(
  rows: Pick<RegistryRows, 'list'>,
  pause: () => Promise<void>,
  isMeant: (record: ServerRecord | undefined) => boolean = () => true,
): Promise<readonly LivingServer[]> {
  const list = async (): Promise<Map<string, Uint8Array>> => {
    const found = new Map<string, Uint8Array>()
    for (const [name, bytes] of await rows.list())
      if (name.startsWith('server/') && isMeant(decodeServer(bytes))) found.set(name.slice('server/'.length), bytes)
    return found
  }
  const before = await list()
  if (before.size === 0) return []
  await pause()
  const living: LivingServer[] = []
  for (const [id, bytes] of await list()) {
    const earlier = before.get(id)
    if (earlier === undefined || !isSame(earlier, bytes)) living.push({ id, record: decodeServer(bytes) })
  }
  return living
}
