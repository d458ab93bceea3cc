import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Leases } from './answers.js'
import { Empty, Failure, KeyText, Panel } from './parts.js'
import { type Restoration, type RestorePlan, restorePlan } from './restore.js'
import { addressOf } from './route.js'
import { Refused, type Server } from './server.js'
import { useSession } from './session.js'
import { useLoaded } from './use-loaded.js'
import { idOf, preview, shown, type WireBytes } from './wire-bytes.js'

const SHOWN_MAX = 100
const VALUE_CHARACTERS = 80

async function loadPlan(
  server: Server,
  restorations: readonly Restoration[],
  signal: AbortSignal,
): Promise<RestorePlan> {
  const hasLeases = restorations.some(({ target }) => target?.leaseFence !== undefined)
  const { leases } = hasLeases ? await server.get<Leases>('/v1/leases?limit=10000', signal) : { leases: [] }
  const names = new Map(leases.map(({ name, fence }) => [fence, name]))
  return restorePlan(restorations, names, await server.tso(signal))
}

/** Shows what a restoration does, and does it when told to. */
export function RestorePanel(props: {
  readonly title: string
  readonly note?: string
  readonly restorations: readonly Restoration[]
  readonly onDone: () => void
  readonly onCancel: () => void
}): JSX.Element {
  const { title, note, restorations, onDone, onCancel } = props
  const { server } = useSession()
  const plan = useLoaded((signal) => loadPlan(server, restorations, signal), [server, restorations])
  const [error, setError] = useState<unknown>()
  const [isBusy, setBusy] = useState(false)
  const cancel = useRef<HTMLButtonElement>(null)
  useEffect(() => {
    const opener = document.activeElement
    cancel.current?.focus()
    return () => {
      // Keyboards go on where they were.
      if (opener instanceof HTMLElement) opener.focus()
    }
  }, [])
  const restore = async (): Promise<void> => {
    setBusy(true)
    setError(undefined)
    try {
      await server.post('/v1/txn', plan.value?.request)
      onDone()
    } catch (failure) {
      setError(changedMeanwhile(failure) ?? failure)
      setBusy(false)
    }
  }
  const { keys } = plan.value ?? { keys: [] }
  return (
    <Panel title={title} aside={<span class="quiet">all or nothing, and nothing if a key changes first</span>}>
      {plan.value === undefined && plan.error === undefined && <Empty>Loading…</Empty>}
      <ul class="restored">
        {keys.slice(0, SHOWN_MAX).map(({ key, value, notes }) => (
          <li key={idOf(key)}>
            <span class={`op ${value === undefined ? 'delete' : 'put'}`}>{value === undefined ? 'delete' : 'put'}</span>{' '}
            <a href={addressOf('key', key)}>
              <KeyText of={key} />
            </a>{' '}
            {value !== undefined && <bdi class="bytes quiet">{preview(value, VALUE_CHARACTERS)}</bdi>}
            {notes.map((note) => (
              <small key={note} class="kept">
                {note}
              </small>
            ))}
          </li>
        ))}
      </ul>
      {keys.length > SHOWN_MAX && <p class="quiet">and {keys.length - SHOWN_MAX} more</p>}
      <Failure error={plan.error ?? error} />
      <p class="bar">
        <button type="button" class="chief" disabled={isBusy || keys.length === 0} onClick={restore}>
          {keys.length > 1 ? `Restore ${keys.length} keys` : 'Restore'}
        </button>
        <button ref={cancel} type="button" onClick={onCancel}>
          Cancel
        </button>
        {note !== undefined && <span class="quiet">{note}</span>}
      </p>
    </Panel>
  )
}

const NAMED_MAX = 3

interface FailedCheck {
  readonly key?: WireBytes
  readonly lease?: string
  readonly commit_ts?: number
}

/** Names the keys that have changed meanwhile. undefined: the refusal has another reason. */
function changedMeanwhile(error: unknown): string | undefined {
  if (!(error instanceof Refused) || !['precondition_failed', 'write_conflict'].includes(error.code)) return undefined
  const problem: { readonly failed_checks?: readonly FailedCheck[] } & FailedCheck = error.problem
  const { failed_checks = [problem] } = problem
  const told = failed_checks.slice(0, NAMED_MAX).map(({ key, lease, commit_ts }) => {
    if (key === undefined) return lease === undefined ? error.message : `the lease ${lease} is not held any more`
    if (commit_ts === undefined) return `${shown(key)} is being changed`
    return commit_ts === 0 ? `${shown(key)} is absent now` : `${shown(key)} has the version ${commit_ts} now`
  })
  const others = failed_checks.length - told.length
  return `Somebody was faster: ${told.join(', ')}${others > 0 ? `, and ${others} others` : ''}. Nothing was changed.`
}
