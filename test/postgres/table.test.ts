import { tableSuite } from '../store/table/table-suite.js'
import { openOwnTable } from './own-table.js'

tableSuite(() => openOwnTable())
