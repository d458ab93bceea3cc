import { openTable } from '../../src/store/table/postgres/postgres-table.js'
import { tableSuite } from '../store/table/table-suite.js'
import { togetherSuite } from '../store/table/together-suite.js'
import { openOwnTable, ownAddress } from './own-table.js'

tableSuite(() => openOwnTable())

togetherSuite(async () => {
  const address = ownAddress()
  return [await openOwnTable({}, address), await openTable(address)]
})
