import { callOptions, type InstanceAdminClient, openInstanceAdminClient } from './google-package.js'
import { NOT_FOUND, PERMISSION_DENIED, printFailure, UNIMPLEMENTED } from './grpc-failures.js'
import { appProfileName, printTableAddress, type TableAddress } from './table-address.js'
import { causeCode, repeated } from './table-admin.js'

/**
 * The cluster that the app profile of an address routes to.
 * @param onUnknown gets one line when this program may not ask, or has no answer: the data may be served even so.
 * @returns undefined when it is unknown; emulators have no app profiles.
 * @throws BigtableSetupError when there is no such app profile.
 */
export async function clusterOf(
  address: TableAddress,
  onUnknown: (message: string) => void,
): Promise<string | undefined> {
  const admin = await openInstanceAdminClient()
  try {
    return await clusterIn(admin, address, onUnknown)
  } finally {
    await admin.close()
  }
}

/** @internal */
export async function clusterIn(
  admin: Pick<InstanceAdminClient, 'getAppProfile'>,
  address: TableAddress,
  onUnknown: (message: string) => void,
): Promise<string | undefined> {
  try {
    const request = { name: appProfileName(address) }
    const [profile] = await repeated(address, (ms) => admin.getAppProfile(request, callOptions(ms)))
    return profile.singleClusterRouting?.clusterId || undefined
  } catch (error) {
    const code = causeCode(error)
    if (code === NOT_FOUND) throw error
    if (code !== UNIMPLEMENTED) {
      const why =
        code === PERMISSION_DENIED
          ? 'the permission bigtable.appProfiles.get is missing'
          : `the app profile cannot be read (${printFailure((error as Error).cause)})`
      onUnknown(`${printTableAddress(address)}: nobody checks that all servers use one cluster, because ${why}`)
    }
    return undefined
  }
}
