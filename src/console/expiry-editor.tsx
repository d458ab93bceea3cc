import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { Version } from './answers.js'
import { Failure, Panel } from './parts.js'
import { msOf, PER_MS } from './readable-time.js'
import { useSession } from './session.js'
import { conflictOf } from './value-editor.js'
import type { WireBytes } from './wire-bytes.js'

const UNITS_MS = { seconds: 1000, minutes: 60_000, hours: 3_600_000, days: 86_400_000 } as const
type Unit = keyof typeof UNITS_MS | 'at'

interface Props {
  readonly name: WireBytes
  readonly present: Version
  readonly onDone: () => void
  readonly onCancel: () => void
}

/** Sets, changes or drops the expiry of a version. `touch` keeps its value and its lease. */
export function ExpiryEditor({ name, present, onDone, onCancel }: Props): JSX.Element {
  const { server } = useSession()
  const [unit, setUnit] = useState<Unit>(present.expireTs === undefined ? 'minutes' : 'at')
  const [count, setCount] = useState('30')
  const [time, setTime] = useState(() => localTime(present.expireTs))
  const [error, setError] = useState<unknown>()
  const [isBusy, setBusy] = useState(false)

  const touch = async (expiry: object): Promise<void> => {
    setBusy(true)
    try {
      const checks = [{ key: name, commit_ts: present.commitTs }]
      await server.post('/v1/txn', { checks, ops: [{ op: 'touch', key: name, ...expiry }] })
      onDone()
    } catch (failure) {
      setError(conflictOf(failure) ?? failure)
      setBusy(false)
    }
  }
  const set = (event: Event): void => {
    event.preventDefault()
    const atMs = new Date(time).getTime()
    const ttlMs = unit === 'at' ? atMs - Date.now() : Math.round(Number(count) * UNITS_MS[unit])
    if (ttlMs >= 1) void touch(unit === 'at' ? { expire_ts: atMs * PER_MS } : { ttl_ms: ttlMs })
    else setError(unit === 'at' ? 'Give a time to come.' : 'Give a number above 0.')
  }

  return (
    <Panel title="Expiry">
      <form onSubmit={set}>
        <div class="bar">
          <label for="expiry">Expires</label>
          {unit === 'at' ? (
            <input
              id="expiry"
              type="datetime-local"
              step={1}
              value={time}
              onInput={(event) => setTime(event.currentTarget.value)}
            />
          ) : (
            <input
              id="expiry"
              class="count"
              type="number"
              min={0}
              step="any"
              value={count}
              onInput={(event) => setCount(event.currentTarget.value)}
            />
          )}
          <select
            aria-label="Unit of the expiry"
            value={unit}
            onChange={(event) => setUnit(event.currentTarget.value as Unit)}
          >
            {Object.keys(UNITS_MS).map((one) => (
              <option key={one} value={one}>
                {one} from now
              </option>
            ))}
            <option value="at">at this time</option>
          </select>
          <button type="submit" class="chief" disabled={isBusy}>
            Set expiry
          </button>
          {present.expireTs !== undefined && (
            <button type="button" disabled={isBusy} onClick={() => touch({ persist: true })}>
              Never expire
            </button>
          )}
          <button type="button" onClick={onCancel}>
            Cancel
          </button>
        </div>
        <Failure error={error} />
      </form>
    </Panel>
  )
}

/** As the field for a local time takes it. */
function localTime(ts: number | undefined): string {
  const ms = ts === undefined ? Date.now() + 3_600_000 : msOf(ts)
  const date = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000)
  return Number.isNaN(date.getTime()) ? '' : date.toISOString().slice(0, 19)
}
