import type { Timestamp } from '../../timestamp.js'
import type { MvccInfo, MvccWrite } from '../api.js'
import { lockInfo } from '../lock-info.js'
import type { RowView } from '../row.js'
import type { WriteRecord } from '../write.js'

export function mvccGet(row: RowView, values: readonly { startTs: Timestamp; value: Uint8Array }[]): MvccInfo {
  return {
    lock: row.lock === undefined ? null : lockInfo(row.key, row.lock),
    writes: row.writes.map(describeWrite),
    values,
  }
}

function describeWrite(write: WriteRecord): MvccWrite {
  return {
    type: write.type,
    startTs: write.startTs,
    commitTs: write.commitTs,
    ...(write.shortValue === undefined ? {} : { shortValue: write.shortValue }),
    ...(write.expireTs === 0 ? {} : { expireTs: write.expireTs }),
    ...(write.leaseFence === 0 ? {} : { leaseFence: write.leaseFence }),
    ...(write.isProtected ? { protected: true } : {}),
    ...(write.hasOverlappedRollback ? { overlappedRollback: true } : {}),
  }
}
