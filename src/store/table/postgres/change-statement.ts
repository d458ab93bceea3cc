import type { Cell } from '../layout/table.js'
import { WITNESS } from './kept-commits.js'
import type { PlannedChange } from './planned-change.js'
import { byteArray, charArray, type Statement } from './postgres-package.js'

type Named = Pick<Cell, 'family' | 'qualifier'> & { readonly key: Buffer }

/**
 * Fails the statement, for want of such a setting, where the session is not as it was prepared, as behind a pooler that shares
 * sessions out by the transaction.
 */
const isAt = (isolation: Isolation, text: string): string =>
  `case when current_setting('transaction_isolation') = '${isolation}' then ${text} else current_setting('perkv.needs_its_isolation') end`

/** `read committed` serves where all rows are locked. */
type Isolation = 'repeatable read' | 'read committed'

const SAME_CELL = 'c.key = g.key and c.family = g.family and c.qualifier = g.qualifier'

interface ChangeOptions {
  readonly isolation?: Isolation
  readonly isWitnessed: boolean
}

/**
 * One statement for changes of different rows. It answers with the keys of those that are done, in hexadecimal digits, and a
 * witness; the others have met another value.
 */
export function changeStatement(
  table: string,
  changes: readonly PlannedChange[],
  { isolation = 'repeatable read', isWitnessed }: ChangeOptions,
): Statement {
  const values: Buffer[] = []
  const array = (type: string, value: Buffer): string => `$${values.push(value)}::${type}[]`
  const cells = (some: readonly Named[]): string =>
    [
      array('bytea', byteArray(some.map(({ key }) => key))),
      array('"char"', charArray(some.map(({ family }) => family))),
      array('bytea', byteArray(some.map(({ qualifier }) => qualifier))),
    ].join(', ')
  const bytes = (some: readonly Buffer[]): string => array('bytea', byteArray(some))

  const updated: (Named & { readonly was: Buffer; readonly next: Buffer })[] = []
  const deleted: (Named & { readonly was: Buffer })[] = []
  const inserted: (Named & { readonly next: Buffer })[] = []
  const puts: (Named & { readonly value: Buffer })[] = []
  const dropped: Named[] = []
  const cleared: { readonly key: Buffer; readonly family: string }[] = []
  const kept: Named[] = []
  for (const { key, guard, ...change } of changes) {
    if (guard.kind === 'update') updated.push({ key, ...guard })
    else if (guard.kind === 'delete') deleted.push({ key, ...guard })
    else inserted.push({ key, ...guard })
    for (const cell of change.puts) puts.push({ key, ...cell })
    for (const cell of change.deletes) dropped.push({ key, ...cell })
    for (const family of change.cleared) cleared.push({ key, family })
    if (change.cleared.length > 0) kept.push({ key, ...guard }, ...change.puts.map((cell) => ({ key, ...cell })))
  }

  const held: string[] = []
  const parts: string[] = []
  if (updated.length > 0) {
    held.push('updated')
    parts.push(`updated as (
      update ${table} as c set value = g.next
      from unnest(${cells(updated)}, ${bytes(updated.map(({ was }) => was))}, ${bytes(updated.map(({ next }) => next))})
        as g(key, family, qualifier, was, next)
      where ${SAME_CELL} and c.value = g.was returning c.key)`)
  }
  if (deleted.length > 0) {
    held.push('deleted')
    parts.push(`deleted as (
      delete from ${table} as c
      using unnest(${cells(deleted)}, ${bytes(deleted.map(({ was }) => was))}) as g(key, family, qualifier, was)
      where ${SAME_CELL} and c.value = g.was returning c.key)`)
  }
  if (inserted.length > 0) {
    held.push('inserted')
    parts.push(`inserted as (
      insert into ${table} (key, family, qualifier, value)
      select * from unnest(${cells(inserted)}, ${bytes(inserted.map(({ next }) => next))})
      on conflict (key, family, qualifier) do nothing returning key)`)
  }
  parts.push(`held as (${held.map((name) => `select key from ${name}`).join(' union all ')})`)
  const isHeld = 'g.key = any (array(select key from held))'
  if (puts.length > 0)
    parts.push(`put as (
      insert into ${table} (key, family, qualifier, value)
      select * from unnest(${cells(puts)}, ${bytes(puts.map(({ value }) => value))}) as g(key, family, qualifier, value)
      where ${isHeld} on conflict (key, family, qualifier) do update set value = excluded.value)`)
  if (dropped.length > 0)
    parts.push(`dropped as (
      delete from ${table} as c using unnest(${cells(dropped)}) as g(key, family, qualifier)
      where ${SAME_CELL} and ${isHeld})`)
  if (cleared.length > 0)
    parts.push(`cleared as (
      delete from ${table} as c
      using unnest(${bytes(cleared.map(({ key }) => key))}, ${array('"char"', charArray(cleared.map(({ family }) => family)))})
        as g(key, family)
      where c.key = g.key and c.family = g.family and ${isHeld} and not exists (
        select 1 from unnest(${cells(kept)}) as k(key, family, qualifier)
        where k.key = c.key and k.family = c.family and k.qualifier = c.qualifier))`)
  const kinds = [updated, deleted, inserted, puts, dropped, cleared].map(({ length }) => (length > 0 ? 1 : 0))
  // In a query of its own, which runs once and not for each row.
  const text = `with ${parts.join(', ')} select key, (select ${isAt(isolation, isWitnessed ? WITNESS : "''")}) from held`
  return { name: `change ${kinds.join('')} ${isolation}`, text, values }
}

/** Removes the cells that stood for absent ones. */
export function transientStatement(table: string, changes: readonly PlannedChange[]): Statement {
  const text = `delete from ${table} as c using unnest($1::bytea[], $2::"char"[], $3::bytea[]) as g(key, family, qualifier)
    where ${SAME_CELL}`
  const values = [
    byteArray(changes.map(({ key }) => key)),
    charArray(changes.map(({ guard }) => guard.family)),
    byteArray(changes.map(({ guard }) => guard.qualifier)),
  ]
  return { name: 'transient', text, values }
}
