import { useEffect, useState } from 'preact/hooks'

/**
 * What is read for the lines of a page, by the ids of their keys, as it arrives. It begins anew when `of` changes. After a failure the
 * lines are shown without the rest.
 * @param read calls `add` with each part. @param of undefined: nothing is read yet.
 */
export function useArriving<P, T>(
  of: P | undefined,
  read: (of: P, add: (more: ReadonlyMap<string, T>) => void, signal: AbortSignal) => Promise<void>,
  deps: readonly unknown[],
): ReadonlyMap<string, T> {
  const [known, setKnown] = useState<ReadonlyMap<string, T>>(new Map())
  useEffect(() => {
    setKnown(new Map())
    if (of === undefined) return
    const stop = new AbortController()
    const add = (more: ReadonlyMap<string, T>): void => {
      if (!stop.signal.aborted) setKnown((before) => new Map([...before, ...more]))
    }
    read(of, add, stop.signal).catch(() => {})
    return () => stop.abort()
  }, [of, ...deps])
  return known
}
