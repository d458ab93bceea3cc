import type { RowCondition } from '../layout/table.js'
import { byteArray, charArray, type Statement } from './postgres-package.js'

/**
 * Locks the cells that have the expected values, until the transaction ends. It answers with their places, from 1 on, without the
 * cells that another transaction has locked. From its lock on, `xmax` of a cell is the transaction, also for whoever cannot see
 * yet what it will write: settled reads rest on that (`settled.ts`).
 */
export function lockStatement(table: string, rows: readonly RowCondition[]): Statement {
  const text = `select g.i
    from unnest($1::bytea[], $2::"char"[], $3::bytea[], $4::bytea[]) with ordinality
      as g(key, family, qualifier, was, i), ${table} as c
    where c.key = g.key and c.family = g.family and c.qualifier = g.qualifier and c.value = g.was
    for no key update of c skip locked`
  const values = [
    byteArray(rows.map(({ key }) => key)),
    charArray(rows.map(({ expected }) => expected.family)),
    byteArray(rows.map(({ expected }) => expected.qualifier)),
    byteArray(rows.map(({ expected }) => expected.value)),
  ]
  return { name: 'lock', text, values }
}
