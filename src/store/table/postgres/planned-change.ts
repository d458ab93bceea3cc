import type { Cell, ColumnWrite, Expected, Family, RowWrite } from '../layout/table.js'

const FAMILIES: readonly Family[] = ['d', 'l', 'o', 'r', 'v', 'w']

/**
 * What a change does to the cell on which it depends. That is done first, and locks the cell: two changes with one condition cannot
 * both be done.
 */
type Guard = { readonly family: Family; readonly qualifier: Buffer } & (
  | { readonly kind: 'update'; readonly was: Buffer; readonly next: Buffer }
  | { readonly kind: 'delete'; readonly was: Buffer }
  /** `isTransient`: the change leaves the cell absent, so it is removed again before the commit. */
  | { readonly kind: 'insert'; readonly next: Buffer; readonly isTransient: boolean }
)

type Column = Omit<Cell, 'value'>

/** A change of a row as sets of cells, none of which is in two of them: one statement cannot write a cell twice. */
export interface PlannedChange {
  readonly key: Buffer
  readonly guard: Guard
  readonly puts: readonly Cell[]
  readonly deletes: readonly Column[]
  /** Families whose other cells are removed. */
  readonly cleared: readonly Family[]
  readonly bytes: number
}

const NOTHING = Buffer.alloc(0)

export function planChange(key: Buffer, expected: Expected, writes: readonly RowWrite[] | 'remove'): PlannedChange {
  const last = new Map<string, ColumnWrite>()
  const cleared = new Set<Family>(writes === 'remove' ? FAMILIES : [])
  let bytes = key.length + (expected.value?.length ?? 0)
  for (const write of writes === 'remove' ? [] : writes)
    if (write.qualifier !== undefined) {
      last.set(nameOf(write), write)
      bytes += write.qualifier.length + (write.value?.length ?? 0)
    } else {
      cleared.add(write.family)
      for (const [name, { family }] of last) if (family === write.family) last.delete(name)
    }
  const own = last.get(nameOf(expected))
  last.delete(nameOf(expected))
  const others = [...last.values()]
  return {
    ...{ key, bytes, guard: guardOf(expected, own, cleared.has(expected.family)) },
    puts: others.filter((write): write is Cell => write.value !== undefined),
    deletes: others.filter(({ family, value }) => value === undefined && !cleared.has(family)),
    cleared: [...cleared],
  }
}

/** A change on the condition that a cell is absent, which it leaves absent. */
export function leavesAbsent({ guard }: PlannedChange): boolean {
  return guard.kind === 'insert' && guard.isTransient
}

function guardOf({ family, qualifier, value: was }: Expected, own: ColumnWrite | undefined, isCleared: boolean): Guard {
  const column = { family, qualifier }
  const next = own?.value
  if (was === undefined) return { ...column, kind: 'insert', next: next ?? NOTHING, isTransient: next === undefined }
  if (next !== undefined) return { ...column, kind: 'update', was, next }
  // A cell that the change leaves as it is is written as it is.
  return own !== undefined || isCleared
    ? { ...column, kind: 'delete', was }
    : { ...column, kind: 'update', was, next: was }
}

function nameOf({ family, qualifier }: Column): string {
  return family + qualifier.toString('latin1')
}
