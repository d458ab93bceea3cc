import { test } from 'vitest'
import { MemoryTable } from '../store/bigtable/memory-table.js'
import { severalDatabases } from '../store/bigtable/several-databases.js'
import { utf8 } from '../store/support.js'

test('x', async () => {
  const table = new MemoryTable()
  const [a] = await severalDatabases(table, 1)
  if (!a) return
  console.log(await a.observers.put('o', { range: { prefix: utf8('d/') } }))
  await a.observers.notify('o', [utf8('d/1'), utf8('d/2')])
  const o = a.store.cells.named('o') as any
  const cells = a.store.sharedCells!
  console.dir(await cells.hinted(o.id, { after: undefined, limit: 10 }), { depth: 5 })
  console.dir(await cells.look(o.id, [utf8('d/1'), utf8('d/2')], a.store.clock()), { depth: 5 })
  console.log(await a.observers.claim('o', { worker: 'w', limit: 10 }))
  await a.close()
})
