import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { Status } from './answers.js'
import { Failure } from './parts.js'
import { msOf, PER_MS, readableMs, timeOf } from './readable-time.js'
import { addressOf, type Route, travel, useRoute } from './route.js'
import { useSession } from './session.js'
import { typedTime } from './typed-time.js'
import type { WireBytes } from './wire-bytes.js'

/** The view follows the slider when it has rested so long. */
const REST_MS = 60

/** The earliest time of the slider when nothing was collected yet. */
function floorOf({ safe_point, uptime_ms, gc }: Status, nowMs: number): number {
  if (safe_point > 0) return Math.min(msOf(safe_point) + 1, nowMs - 1000)
  return nowMs - Math.max(gc.life_time_ms, Math.min(uptime_ms, 86_400_000))
}

export function TimeSlider({ status }: { readonly status: Status }): JSX.Element {
  const { at } = useSession()
  const route = useRoute()
  /** Fixed while a past time is selected. */
  const [nowMs, setNowMs] = useState(Date.now)
  const [dragged, setDragged] = useState<{ readonly at: number | undefined }>()
  useEffect(() => {
    if (at === undefined) setNowMs(Date.now())
  }, [at, status])
  useEffect(() => {
    if (dragged === undefined) return
    const timer = setTimeout(() => {
      setDragged(undefined)
      travel(dragged.at, at !== undefined && dragged.at !== undefined)
    }, REST_MS)
    return () => clearTimeout(timer)
  }, [dragged])
  const floor = floorOf(status, nowMs)
  const shown = dragged === undefined ? at : dragged.at
  const value = shown === undefined ? nowMs : Math.max(floor, Math.min(nowMs, msOf(shown)))
  const set = (ms: number): void => {
    // Includes every commit of that millisecond.
    setDragged({ at: ms >= nowMs ? undefined : ms * PER_MS + PER_MS - 1 })
  }
  const label = shown === undefined ? 'now' : `${timeOf(shown) ?? shown}, ${readableMs(Date.now() - msOf(shown))} ago`
  return (
    <section class={at === undefined ? 'time' : 'time past'} aria-label="Time travel">
      <label for="time">Time</label>
      <input
        id="time"
        type="range"
        min={floor}
        max={nowMs}
        step={Math.max(1, Math.round((nowMs - floor) / 2000))}
        value={value}
        aria-valuetext={label}
        onInput={(event) => set(Number(event.currentTarget.value))}
      />
      <output for="time">{label}</output>
      {at !== undefined && (
        <button type="button" class="small" onClick={() => travel(undefined)}>
          Back to now
        </button>
      )}
      <TypedTime />
      <a href={addressOf('diff', folderOf(route), { from: at })}>
        {at === undefined ? 'What changed' : 'What changed since'}
      </a>
    </section>
  )
}

function folderOf({ view, argument }: Route): WireBytes {
  if (view === 'browse') return argument
  return typeof argument === 'string' ? argument.slice(0, argument.lastIndexOf('/') + 1) : ''
}

function TypedTime(): JSX.Element {
  const { server, safePoint } = useSession()
  const [text, setText] = useState('')
  const [error, setError] = useState<unknown>()
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    try {
      travel(typedTime(text, await server.tso(), safePoint))
      setText('')
      setError(undefined)
    } catch (failure) {
      setError(failure)
    }
  }
  return (
    <>
      <form class="typed" onSubmit={submit}>
        <input
          aria-label="Go to a time"
          placeholder="10 min ago, 13:40, …"
          value={text}
          spellcheck={false}
          autocomplete="off"
          autocapitalize="off"
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <button type="submit" class="small">
          Go
        </button>
      </form>
      <Failure error={error} />
    </>
  )
}

/** In place of a view: what is left of this time may be less than what was there. */
export function BeforeSafePoint({ safePoint }: { readonly safePoint: number }): JSX.Element {
  return (
    <div class="empty">
      <p>
        This time is before the safe point, {timeOf(safePoint)}: versions of then may be collected already, so it cannot
        be shown.
      </p>
      <p class="bar">
        <button type="button" onClick={() => travel(safePoint)}>
          Earliest time
        </button>
        <button type="button" onClick={() => travel(undefined)}>
          Back to now
        </button>
      </p>
    </div>
  )
}
