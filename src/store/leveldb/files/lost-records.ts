/** Range of stored keys. Both ends are inclusive; an absent one is open. */
export interface StoredRange {
  readonly gte?: Buffer | undefined
  readonly lte?: Buffer | undefined
}

export type LostRecords =
  /** In a table: any record between two keys. */
  | { readonly kind: 'range'; readonly file: string; readonly range: StoredRange }
  /** In the log, from the first damaged record to the end or to the next readable one. Not all keys are known. */
  | {
      readonly kind: 'log'
      readonly file: string
      readonly offset: number
      readonly keys: readonly Buffer[]
      readonly isLaterKept?: boolean
    }
  | { readonly kind: 'tables'; readonly file: string }
