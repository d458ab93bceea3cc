import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { msOf, readableMs, timeOf } from './readable-time.js'

const EVERY_MS = 1000
const listeners = new Set<() => void>()
let timer: ReturnType<typeof setInterval> | undefined

/** The time of the browser's clock, every second. All components share one timer. */
function useNowMs(): number {
  const [nowMs, setNowMs] = useState(Date.now)
  useEffect(() => {
    const update = (): void => setNowMs(Date.now())
    listeners.add(update)
    timer ??= setInterval(() => {
      if (!document.hidden) for (const listener of listeners) listener()
    }, EVERY_MS)
    return () => {
      listeners.delete(update)
      if (listeners.size > 0) return
      clearInterval(timer)
      timer = undefined
    }
  }, [])
  return nowMs
}

interface Props {
  readonly to: number
  /** Stands before the time that is left. */
  readonly label?: string
  /** What is shown once no time is left. */
  readonly over: string
}

/** The time left until a timestamp, with the instant on hover. */
export function Countdown({ to, label = '', over }: Props): JSX.Element {
  const leftMs = msOf(to) - useNowMs()
  return (
    <span class="nowrap" title={timeOf(to) ?? String(to)}>
      {leftMs <= 0 ? over : label + roughly(leftMs)}
    </span>
  )
}

/** Without tenths of seconds, which a clock that ticks every second cannot show. */
function roughly(ms: number): string {
  return ms < 60_000 ? `${Math.ceil(ms / 1000)} s` : readableMs(ms)
}
