/** Stored keys, both ends included; an absent one is open. */
export interface StoredRange {
  readonly gte?: Buffer | undefined
  readonly lte?: Buffer | undefined
}

/** Records that are gone with a damaged part of a file: values and deletions alike. */
export type LostRecords =
  /** Of a table: any between two keys. */
  | { readonly kind: 'range'; readonly file: string; readonly range: StoredRange }
  /** Of the log, from the first damaged record on: to its end, or to the next that can be read. Not all keys are known. */
  | {
      readonly kind: 'log'
      readonly file: string
      readonly offset: number
      readonly keys: readonly Buffer[]
      readonly isLaterKept?: boolean
    }
  /** Nobody can tell which tables there were. */
  | { readonly kind: 'tables'; readonly file: string }
