import type { History, Version, WriteInfo } from './answers.js'

type Columns = Pick<History, 'writes' | 'values'>

/** The version that a read at `ts` sees. */
export function versionAt(history: Columns, ts: number): Version | undefined {
  return newestVersion(history, ts, ts)
}

/** The present version. @param nowTs by the clock of the server, which is that of expiries. */
export function versionNow(history: Columns, nowTs: number): Version | undefined {
  return newestVersion(history, Number.POSITIVE_INFINITY, nowTs)
}

function newestVersion({ writes, values }: Columns, commitTsMax: number, nowTs: number): Version | undefined {
  const write = writes.find(({ type, commit_ts }) => isVersion(type) && commit_ts <= commitTsMax)
  if (write === undefined || write.type === 'delete') return undefined
  const { commit_ts: commitTs, expire_ts: expireTs, lease_fence: leaseFence } = write
  if (expireTs !== undefined && expireTs <= nowTs) return undefined
  const value = write.short_value ?? values.find(({ start_ts }) => start_ts === write.start_ts)?.value
  return value === undefined ? undefined : { value, commitTs, expireTs, leaseFence }
}

export function isVersion(type: WriteInfo['type']): boolean {
  return type === 'put' || type === 'delete'
}
