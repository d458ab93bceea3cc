import { sleep } from '../../../event-loop/sleep.js'
import { callOptions, type TableAdminClient } from './google-package.js'
import { type TableAddress, tableName } from './table-address.js'
import { repeated } from './table-admin.js'

const CHECK_MS = 1000

/**
 * Waits until every cluster of the instance has what was written before the call.
 * @param checkMs time between two checks.
 * @throws BigtableSetupError
 */
export async function waitForReplication(
  admin: Pick<TableAdminClient, 'generateConsistencyToken' | 'checkConsistency'>,
  address: TableAddress,
  checkMs = CHECK_MS,
): Promise<void> {
  const name = tableName(address)
  const [{ consistencyToken }] = await repeated(address, (ms) =>
    admin.generateConsistencyToken({ name }, callOptions(ms)),
  )
  for (;;) {
    const [{ consistent }] = await repeated(address, (ms) =>
      admin.checkConsistency({ name, consistencyToken }, callOptions(ms)),
    )
    if (consistent) return
    await sleep(checkMs)
  }
}
