import { idOf, type WireBytes } from './wire-bytes.js'

/** A transaction in two phases, one call at a time. Pure: the steps that were done, and the next ones. */

export interface Mutation {
  readonly op: 'put' | 'delete' | 'lock'
  readonly key: WireBytes
  /** Only for a put. */
  readonly value: string
}

type StepKind = 'begin' | 'prewrite' | 'commit_ts' | 'commit'

export interface Step {
  readonly kind: StepKind
  /** For prewrite and commit. The first mutation is the primary. */
  readonly index: number
}

export interface Progress {
  readonly startTs?: number
  readonly commitTs?: number
  /** Number of steps that are done. */
  readonly done: number
  readonly end?: 'died' | 'rolled back'
}

export const MUTATIONS_MAX = 20

export function stepsOf(mutations: readonly Mutation[]): readonly Step[] {
  const each = (kind: StepKind): Step[] => mutations.map((_, index) => ({ kind, index }))
  return [{ kind: 'begin', index: 0 }, ...each('prewrite'), { kind: 'commit_ts', index: 0 }, ...each('commit')]
}

export function isCommitted({ done }: Progress, mutations: readonly Mutation[]): boolean {
  return done > mutations.length + 2
}

export function problemOf(mutations: readonly Mutation[]): string | undefined {
  if (mutations.length === 0) return 'A transaction needs a key.'
  if (mutations.some(({ key }) => key === '')) return 'A key has at least one byte.'
  if (new Set(mutations.map(({ key }) => idOf(key))).size < mutations.length) return 'Each key may stand here once.'
  return undefined
}

/** The example of Percolator's paper: Bob has 10 dollars and Joe 2, and Bob gives Joe 7. */
export const BANK = {
  before: [
    { key: 'demo/bank/Bob', value: '10' },
    { key: 'demo/bank/Joe', value: '2' },
  ],
  transfer: [
    { op: 'put', key: 'demo/bank/Bob', value: '3' },
    { op: 'put', key: 'demo/bank/Joe', value: '9' },
  ] satisfies readonly Mutation[],
}
