import type { ColumnRange, Expected, RowWrite } from '../layout/table.js'

export interface RowFilter {
  readonly passAllFilter?: true
  readonly columnRangeFilter?: {
    readonly familyName: string
    readonly startQualifierClosed?: Buffer
    readonly endQualifierClosed?: Buffer
  }
  readonly familyNameRegexFilter?: string
  readonly valueRangeFilter?: { readonly startValueClosed: Buffer; readonly endValueClosed?: Buffer }
  readonly cellsPerRowOffsetFilter?: number
  readonly cellsPerRowLimitFilter?: number
  readonly rowSampleFilter?: number
  readonly stripValueTransformer?: true
  readonly applyLabelTransformer?: string
  /** At least two filters, here and below. */
  readonly chain?: { readonly filters: readonly RowFilter[] }
  readonly interleave?: { readonly filters: readonly RowFilter[] }
  readonly condition?: { readonly predicateFilter: RowFilter; readonly falseFilter: RowFilter }
}

export interface RowMutation {
  readonly setCell?: {
    readonly familyName: string
    readonly columnQualifier: Buffer
    readonly timestampMicros: 0
    readonly value: Buffer
  }
  readonly deleteFromColumn?: { readonly familyName: string; readonly columnQualifier: Buffer }
  readonly deleteFromFamily?: { readonly familyName: string }
  readonly deleteFromRow?: Record<string, never>
}

/** Matches rows without records, locks and values, of which only the revision is left. */
const BARE: RowFilter = {
  condition: {
    predicateFilter: { chain: { filters: [{ familyNameRegexFilter: '[dlrw]' }, { cellsPerRowLimitFilter: 1 }] } },
    falseFilter: { columnRangeFilter: { familyName: 'v' } },
  },
}

/**
 * Matches the cells of any of the ranges, which are at least one. A cell in several ranges comes several times.
 * @param orBare see `WalkRequest`.
 * @param sampled share of the rows of which a cell comes in any case, with a label and without its value.
 */
export function filterOf(columns: readonly ColumnRange[], orBare = false, sampled = 0): RowFilter {
  const filters = columns.map(filterOfRange)
  if (orBare) filters.push(BARE)
  if (sampled > 0) filters.push(sampleOf(sampled))
  const [only] = filters
  return only !== undefined && filters.length === 1 ? only : { interleave: { filters } }
}

function sampleOf(share: number): RowFilter {
  const filters: RowFilter[] = [
    { rowSampleFilter: share },
    { cellsPerRowLimitFilter: 1 },
    { stripValueTransformer: true },
    { applyLabelTransformer: 'passed' },
  ]
  return { chain: { filters } }
}

function filterOfRange({ family, from, to, offset, limit, valuesFrom }: ColumnRange): RowFilter {
  const columnRangeFilter = {
    familyName: family,
    ...(from && { startQualifierClosed: from }),
    ...(to && { endQualifierClosed: to }),
  }
  const filters: RowFilter[] = [{ columnRangeFilter }]
  if (offset !== undefined) filters.push({ cellsPerRowOffsetFilter: offset })
  if (limit !== undefined) filters.push({ cellsPerRowLimitFilter: limit })
  if (valuesFrom !== undefined) filters.push({ valueRangeFilter: { startValueClosed: valuesFrom } })
  return filters.length === 1 ? { columnRangeFilter } : { chain: { filters } }
}

/** Matches if the column has this value, or, for undefined, any value. Ranges need no escaping, as patterns do. */
export function predicateOf({ family, qualifier, value }: Expected): RowFilter {
  const column = filterOfRange({ family, from: qualifier, to: qualifier })
  if (value === undefined) return column
  return { chain: { filters: [column, { valueRangeFilter: { startValueClosed: value, endValueClosed: value } }] } }
}

export function mutationOf({ family, qualifier, value }: RowWrite): RowMutation {
  if (qualifier === undefined) return { deleteFromFamily: { familyName: family } }
  if (value === undefined) return { deleteFromColumn: { familyName: family, columnQualifier: qualifier } }
  return { setCell: { familyName: family, columnQualifier: qualifier, timestampMicros: 0, value } }
}
