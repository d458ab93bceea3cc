import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { Status } from './answers.js'
import { msOf, PER_MS, readableMs, timeOf } from './readable-time.js'

interface Props {
  readonly status: Status
  readonly at: number | undefined
  readonly onChange: (at: number | undefined) => void
}

/** The earliest time of the slider when nothing was collected yet. */
function floorOf({ safe_point, uptime_ms, gc }: Status, nowMs: number): number {
  if (safe_point > 0) return Math.min(msOf(safe_point) + 1, nowMs - 1000)
  return nowMs - Math.max(gc.life_time_ms, Math.min(uptime_ms, 86_400_000))
}

export function TimeSlider({ status, at, onChange }: Props): JSX.Element {
  /** Fixed while a past time is selected. */
  const [nowMs, setNowMs] = useState(Date.now)
  useEffect(() => {
    if (at === undefined) setNowMs(Date.now())
  }, [at, status])
  const floor = floorOf(status, nowMs)
  const value = at === undefined ? nowMs : Math.max(floor, Math.min(nowMs, msOf(at)))
  const set = (ms: number): void => {
    // Includes every commit of that millisecond.
    onChange(ms >= nowMs ? undefined : ms * PER_MS + PER_MS - 1)
  }
  const label = at === undefined ? 'now' : `${timeOf(at)}, ${readableMs(nowMs - value)} ago`
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
        <button type="button" class="small" onClick={() => onChange(undefined)}>
          Back to now
        </button>
      )}
    </section>
  )
}
