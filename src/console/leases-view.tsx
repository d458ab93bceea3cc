import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { AttachedKeys, HeldLease, LeasePage } from './answers.js'
import { ConfirmedButton } from './confirmed-button.js'
import { PageButtons } from './page-buttons.js'
import { Empty, Failure, KeyText, Ts } from './parts.js'
import { msOf, readableMs } from './readable-time.js'
import { addressOf } from './route.js'
import { Refused, reasonOf, type Server } from './server.js'
import { useSession } from './session.js'
import { useLoaded } from './use-loaded.js'
import { idOf, shown } from './wire-bytes.js'

const EVERY_MS = 2000
const PAGE = 100
const KEYS_MAX = 100

interface Listed extends LeasePage {
  /** Unix milliseconds by the clock of the server, which is that of the leases. */
  readonly nowMs: number
}

async function load(server: Server, prefix: string, cursor: string | undefined, signal: AbortSignal): Promise<Listed> {
  const query = new URLSearchParams({ prefix, limit: String(PAGE), ...(cursor !== undefined && { cursor }) })
  const [page, { now }] = await Promise.all([
    server.get<LeasePage>(`/v1/leases?${query}`, signal),
    server.percolator<{ now: number }>('tso', {}, signal),
  ])
  return { ...page, nowMs: msOf(now) }
}

export function LeasesView(): JSX.Element {
  const { server, access } = useSession()
  const [prefix, setPrefix] = useState('')
  /** Where the pages up to this one begin. */
  const [cursors, setCursors] = useState<readonly (string | undefined)[]>([undefined])
  const loaded = useLoaded(
    (signal) => load(server, prefix, cursors.at(-1), signal),
    [server, prefix, cursors],
    EVERY_MS,
  )
  const [said, say] = useState('')
  const { leases = [], cursor: next, nowMs = 0 } = loaded.value ?? {}

  const end = async ({ name, holder, fence }: HeldLease): Promise<void> => {
    const query = new URLSearchParams({ holder, fence: String(fence) })
    try {
      const { deleting } = await server.delete<{ deleting?: boolean }>(
        `/v1/leases/${encodeURIComponent(name)}?${query}`,
      )
      say(
        deleting
          ? `${name} is ended. Its attached keys go as soon as the transactions that have locked some are over.`
          : `${name} is ended, and its attached keys are deleted.`,
      )
    } catch (error) {
      const isOver = error instanceof Refused && error.code === 'precondition_failed'
      say(isOver ? `${name} has another holder or another term by now, and was left alone.` : reasonOf(error))
    }
    loaded.reload()
  }

  return (
    <>
      <header class="view-head">
        <h1>Leases</h1>
        <p class="lead">
          A lease has one holder at a time, who renews it. Each term has a fence, above all earlier ones, and keys can
          be attached to it, which are deleted when it ends.
        </p>
        <form class="bar" onSubmit={(event) => event.preventDefault()}>
          <label for="lease-prefix">Names that begin with</label>
          <input
            id="lease-prefix"
            value={prefix}
            onInput={({ currentTarget }) => {
              setPrefix(currentTarget.value)
              setCursors([undefined])
            }}
          />
        </form>
      </header>
      <Failure error={loaded.error} />
      <p role="status" class="said">
        {said}
      </p>
      {leases.length === 0 ? (
        <Empty>
          {loaded.value === undefined
            ? loaded.error === undefined && 'Loading…'
            : prefix !== ''
              ? `Nobody holds a lease whose name begins with ${prefix}.`
              : access.prefixes === undefined
                ? 'Nobody holds a lease.'
                : `Nobody holds a lease whose name begins with ${access.prefixes.map(shown).join(' or ')}: this token reaches no others.`}
        </Empty>
      ) : (
        <ul class="entries" aria-label="Leases">
          {leases.map((lease) => (
            <Line key={lease.fence} lease={lease} nowMs={nowMs} onEnd={access.may_write ? end : undefined} />
          ))}
        </ul>
      )}
      {(next !== undefined || cursors.length > 1) && <PageButtons starts={cursors} next={next} onGo={setCursors} />}
    </>
  )
}

function Line(props: {
  readonly lease: HeldLease
  readonly nowMs: number
  readonly onEnd: ((lease: HeldLease) => Promise<void>) | undefined
}): JSX.Element {
  const { lease, nowMs, onEnd } = props
  const { name, holder, fence, ttl_ms, expires_at } = lease
  const leftMs = Date.parse(expires_at) - nowMs
  const [isOpen, open] = useState(false)
  return (
    <li class="entry">
      <h2 class="entry-name">
        <bdi class="bytes">{shown(name)}</bdi>
      </h2>
      <dl class="numbers">
        <div>
          <dt>holder</dt>
          <dd class="bytes">{shown(holder)}</dd>
        </div>
        <div>
          <dt>granted, fence</dt>
          <dd>
            <Ts ts={fence} isExact />
          </dd>
        </div>
        <div>
          <dt>time left</dt>
          <dd class="nowrap">
            {leftMs > 0 ? readableMs(leftMs) : <span class="badge bad">over</span>}{' '}
            <span class="quiet">of {readableMs(ttl_ms)}</span>
          </dd>
        </div>
      </dl>
      <div class="bar">
        <button type="button" class="small" aria-expanded={isOpen} onClick={() => open(!isOpen)}>
          Attached keys<span class="unseen"> of {name}</span>
        </button>
        {onEnd !== undefined && (
          <ConfirmedButton
            label="End"
            question={`End ${name}, which ${holder} holds? Its attached keys are deleted, and the holder learns of it when a transaction or a renewal is refused.`}
            verb={`End ${name}`}
            onConfirm={() => void onEnd(lease)}
          />
        )}
      </div>
      {isOpen && <Attached name={name} fence={fence} />}
    </li>
  )
}

function Attached({ name, fence }: { readonly name: string; readonly fence: number }): JSX.Element {
  const { server, access } = useSession()
  const { value, error } = useLoaded(
    (signal) => server.get<AttachedKeys>(`/v1/leases/${encodeURIComponent(name)}?keys=${KEYS_MAX}`, signal),
    [server, fence],
    EVERY_MS,
  )
  if (error !== undefined) return <Failure error={error} />
  if (value === undefined) return <p class="quiet">Loading…</p>
  const { keys, more_keys } = value
  return (
    <p>
      {keys.map((key) => (
        <a key={idOf(key)} class="item" href={addressOf('key', key)}>
          <KeyText of={key} />
        </a>
      ))}
      <span class="quiet">
        {keys.length === 0 && `No key${access.prefixes === undefined ? '' : ' that this token reaches'} is attached.`}
        {more_keys && `and more than these ${keys.length}`}
      </span>
    </p>
  )
}
