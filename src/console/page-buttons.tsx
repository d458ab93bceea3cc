import type { ComponentChildren, JSX } from 'preact'

interface Props<T> {
  /** Where this page and those before it begin. */
  readonly starts: readonly T[]
  /** Where the next page begins; undefined: there is none. */
  readonly next: T | undefined
  readonly onGo: (starts: readonly T[]) => void
  readonly children?: ComponentChildren
}

export function PageButtons<T>({ starts, next, onGo, children }: Props<T>): JSX.Element {
  return (
    <nav class="pages" aria-label="Pages">
      <button type="button" disabled={starts.length === 1} onClick={() => onGo(starts.slice(0, -1))}>
        Previous
      </button>
      <span>page {starts.length}</span>
      <button type="button" disabled={next === undefined} onClick={() => next !== undefined && onGo([...starts, next])}>
        Next
      </button>
      {children}
    </nav>
  )
}
