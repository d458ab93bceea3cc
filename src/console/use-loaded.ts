import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { isAbort } from './server.js'

export interface Loaded<T> {
  /** The last answer, also while the next one is loading. */
  readonly value: T | undefined
  readonly error: unknown
  readonly isLoading: boolean
  readonly reload: () => void
}

/**
 * Loads when `deps` change and on `reload`, and gives up a load in progress then.
 * @param everyMs also after this time, counted from the last answer, while the page is visible.
 */
export function useLoaded<T>(
  load: (signal: AbortSignal) => Promise<T>,
  deps: readonly unknown[],
  everyMs?: number,
): Loaded<T> {
  const [state, setState] = useState<{ value?: T; error?: unknown; isLoading: boolean }>({ isLoading: true })
  const [round, setRound] = useState(0)
  const known = useRef<readonly unknown[]>(deps)
  const reload = useCallback(() => setRound((before) => before + 1), [])
  useEffect(() => {
    const stop = new AbortController()
    const isSame = known.current.length === deps.length && known.current.every((one, i) => Object.is(one, deps[i]))
    known.current = deps
    // The answer to another question must not be shown under this one.
    setState((before) => (isSame ? { ...before, isLoading: true } : { isLoading: true }))
    let timer: ReturnType<typeof setTimeout> | undefined
    const again = (): void => {
      if (everyMs === undefined || stop.signal.aborted) return
      timer = setTimeout(() => (document.hidden ? again() : reload()), everyMs)
    }
    load(stop.signal).then(
      (value) => {
        if (stop.signal.aborted) return
        setState({ value, isLoading: false })
        again()
      },
      (error: unknown) => {
        if (stop.signal.aborted || isAbort(error)) return
        setState((before) => ({ ...before, error, isLoading: false }))
        again()
      },
    )
    return () => {
      stop.abort()
      clearTimeout(timer)
    }
  }, [...deps, round])
  return { value: state.value, error: state.error, isLoading: state.isLoading, reload }
}
