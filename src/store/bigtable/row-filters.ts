import type { ColumnRange, ColumnWrite, Expected } from './table.js'

/** Bigtable's RowFilter, as far as it is used. */
export interface RowFilter {
  readonly passAllFilter?: true
  readonly columnRangeFilter?: {
    readonly familyName: string
    readonly startQualifierClosed?: Buffer
    readonly endQualifierClosed?: Buffer
  }
  readonly valueRangeFilter?: { readonly startValueClosed: Buffer; readonly endValueClosed: Buffer }
  readonly cellsPerRowLimitFilter?: number
  /** At least two of them, here and below. */
  readonly chain?: { readonly filters: readonly RowFilter[] }
  readonly interleave?: { readonly filters: readonly RowFilter[] }
}

/** Bigtable's Mutation, as far as it is used. */
export interface RowMutation {
  readonly setCell?: {
    readonly familyName: string
    readonly columnQualifier: Buffer
    readonly timestampMicros: 0
    readonly value: Buffer
  }
  readonly deleteFromColumn?: { readonly familyName: string; readonly columnQualifier: Buffer }
  readonly deleteFromRow?: Record<string, never>
}

/** The cells of any of the ranges, of which there is at least one. Those of several come several times. */
export function filterOf(columns: readonly ColumnRange[]): RowFilter {
  const filters = columns.map(filterOfRange)
  const [only] = filters
  return only !== undefined && filters.length === 1 ? only : { interleave: { filters } }
}

function filterOfRange({ family, from, to, limit }: ColumnRange): RowFilter {
  const columnRangeFilter = {
    familyName: family,
    ...(from && { startQualifierClosed: from }),
    ...(to && { endQualifierClosed: to }),
  }
  if (limit === undefined) return { columnRangeFilter }
  return { chain: { filters: [{ columnRangeFilter }, { cellsPerRowLimitFilter: limit }] } }
}

/** Lets something through if the column has this value, or, for undefined, any value. Ranges need no escaping, as patterns do. */
export function predicateOf({ family, qualifier, value }: Expected): RowFilter {
  const column = filterOfRange({ family, from: qualifier, to: qualifier })
  if (value === undefined) return column
  return { chain: { filters: [column, { valueRangeFilter: { startValueClosed: value, endValueClosed: value } }] } }
}

export function mutationOf({ family, qualifier, value }: ColumnWrite): RowMutation {
  if (value === undefined) return { deleteFromColumn: { familyName: family, columnQualifier: qualifier } }
  return { setCell: { familyName: family, columnQualifier: qualifier, timestampMicros: 0, value } }
}
