import { expect, test } from 'vitest'
import { decodeOracleRecord, encodeOracleRecord } from '../../../src/oracle/oracle-row.js'
import { FIRST_FORMAT } from '../../../src/store/table/format/format-row.js'
import { RECORD } from '../../../src/store/table/layout/layout.js'
import { recordAt } from '../../../src/store/table/layout/record-at.js'
import { rowKeyOfSystem } from '../../../src/store/table/layout/row-keys.js'
import { JoinedServers } from './joined-servers.js'
import { MemoryTable } from './memory-table.js'
import { inLeaps } from './several-databases.js'

test('a server that is started again at once leads before it listens', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const servers = new JoinedServers(table)
    const other = await servers.start('other', { place: 't', newest: FIRST_FORMAT })
    expect(other.role).toBe('leader')
    const key = rowKeyOfSystem('oracle')
    for (let isKilled = false; !isKilled; ) {
      const value = (await recordAt(table, key)) ?? expect.unreachable()
      const { epoch, mark } = decodeOracleRecord(value)
      const next = Buffer.from(
        encodeOracleRecord({ epoch: epoch + 1, url: 'http://killed', id: 'run 1', mark, beat: 1 }),
      )
      const outcome = await table.change(key, { family: 'o', qualifier: RECORD, value }, [
        { family: 'o', qualifier: RECORD, value: next },
      ])
      isKilled = outcome === 'done'
    }
    const again = await servers.start('killed', { place: 't', newest: FIRST_FORMAT })
    expect([again.role, again.warnings]).toEqual(['leader', []])
    await again.close()
    await other.close()
  })
})
