/** When a write is on disk: before its answer, at most a second later, or when the system sees fit. */
export const DURABILITIES = ['sync', '1s', 'async'] as const

export type Durability = (typeof DURABILITIES)[number]
