import { describe } from 'vitest'
import { MemoryBroadcast } from './memory-broadcast.js'
import { MemoryTable } from './memory-table.js'
import { FOR_EVER, wakeUpsSuite } from './wake-ups-suite.js'

describe('two servers that wake each other', () => {
  wakeUpsSuite(
    async () => {
      const table = new MemoryTable()
      table.broadcast = new MemoryBroadcast(FOR_EVER)
      return [table, table]
    },
    { tags: ['long'] },
  )
})
