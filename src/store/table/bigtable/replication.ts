import { sleep } from '../../../event-loop/sleep.js'
import { callOptions, type TableAdminClient } from './google-package.js'
import { printTableAddress, type TableAddress, tableName } from './table-address.js'
import { repeated } from './table-admin.js'

const CHECK_MS = 1000

/**
 * Waits until every cluster of the instance has what was written before the call.
 * @param onWait gets one line when something is missing: the wait has no bound.
 * @param checkMs time between two checks.
 * @throws BigtableSetupError
 */
export async function waitForReplication(
  admin: Pick<TableAdminClient, 'generateConsistencyToken' | 'checkConsistency'>,
  address: TableAddress,
  onWait: (message: string) => void,
  checkMs = CHECK_MS,
): Promise<void> {
  const name = tableName(address)
  const [{ consistencyToken }] = await repeated(address, (ms) =>
    admin.generateConsistencyToken({ name }, callOptions(ms)),
  )
  const since = new Date().toISOString()
  for (let checks = 0; ; checks++) {
    const [{ consistent }] = await repeated(address, (ms) =>
      admin.checkConsistency({ name, consistencyToken }, callOptions(ms)),
    )
    if (consistent) return
    if (checks === 0)
      onWait(
        `${printTableAddress(address)}: waits until all that was written before ${since} is replicated to every cluster`,
      )
    await sleep(checkMs)
  }
}
