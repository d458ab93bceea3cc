import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Pair } from './answers.js'
import { ConfirmedButton } from './confirmed-button.js'
import { CopyButton } from './copy.js'
import { download, pairsBelow, pairsOfKeys } from './export-keys.js'
import { Failure } from './parts.js'
import { isAbort, Refused } from './server.js'
import { useSession } from './session.js'
import { idOf, jsonBytes, shown, type WireBytes } from './wire-bytes.js'

type Run = (say: (text: string) => void, signal: AbortSignal) => Promise<void>

interface Work {
  readonly isRunning: boolean
  readonly said: string
  readonly error: unknown
  readonly run: (work: Run) => void
  readonly stop: () => void
}

/** One piece of work at a time, which ends when its component leaves the page. */
function useWork(): Work {
  const [state, setState] = useState<{ isRunning: boolean; said: string; error?: unknown }>({
    ...{ isRunning: false, said: '' },
  })
  const running = useRef<AbortController | undefined>(undefined)
  useEffect(() => () => running.current?.abort(), [])
  const run: Work['run'] = (work) => {
    running.current?.abort()
    const own = new AbortController()
    running.current = own
    const say = (said: string): void => {
      if (!own.signal.aborted) setState({ isRunning: true, said })
    }
    const end = (error?: unknown): void => {
      if (running.current === own)
        setState(({ said }) => ({ isRunning: false, said, error: isAbort(error) ? undefined : error }))
    }
    say('')
    work(say, own.signal).then(() => end(), end)
  }
  return { ...state, error: state.error, run, stop: () => running.current?.abort() }
}

function Progress({ work, mayStop = true }: { readonly work: Work; readonly mayStop?: boolean }): JSX.Element {
  return (
    <>
      <span role="status">{work.said}</span>
      {work.isRunning && mayStop && (
        <button type="button" class="small" onClick={work.stop}>
          Stop
        </button>
      )}
      <Failure error={work.error} />
    </>
  )
}

/** What is done to the selected keys of a list. */
export function SelectionActions(props: {
  readonly selected: readonly Pair[]
  readonly ts: number
  readonly onClear: () => void
  readonly onDeleted: () => void
}): JSX.Element {
  const { selected, ts, onClear, onDeleted } = props
  const { server, access, at } = useSession()
  const work = useWork()
  const names = selected.map(({ key }) => key)
  const count = keysText(selected.length)
  const [isDeleting, setDeleting] = useState(false)
  const remove = (): void => {
    setDeleting(true)
    work.run(async () => {
      const checks = selected.map(({ key, commit_ts }) => ({ key, commit_ts }))
      const ops = names.map((key) => ({ op: 'delete', key }))
      try {
        await server.post('/v1/txn', { checks, ops })
      } catch (error) {
        throw changedOf(error) ?? error
      } finally {
        setDeleting(false)
      }
      onDeleted()
    })
  }
  return (
    <section class="bar selection" aria-label="Selected keys">
      <strong>{count} selected</strong>
      <CopyButton text={() => names.map((name) => shown(name)).join('\n')}>Copy names</CopyButton>
      <button
        type="button"
        class="small"
        onClick={() =>
          work.run((say, signal) =>
            download(pairsOfKeys(server, names, ts, signal), (keys) => say(`${keysText(keys)} exported`)),
          )
        }
      >
        Export
      </button>
      {access.may_write && at === undefined && (
        <ConfirmedButton
          label="Delete"
          question={`${count} will be deleted, in one transaction, unless one of them has changed since you saw it.`}
          verb={`Delete ${count}`}
          onConfirm={remove}
        />
      )}
      <button type="button" class="small" onClick={onClear}>
        Select none
      </button>
      <Progress work={work} mayStop={!isDeleting} />
    </section>
  )
}

function changedOf(error: unknown): Error | undefined {
  if (!(error instanceof Refused) || error.code !== 'precondition_failed') return undefined
  const { failed_checks: failed = [] } = error.problem as { failed_checks?: readonly { readonly key: WireBytes }[] }
  const keys = failed.map(({ key }) => shown(key)).join(', ')
  return new Error(`Changed since you saw it: ${keys}. Nothing was deleted.`)
}

const DELETED_AT_ONCE = 1000

/** What is done to all keys below a prefix. It stays on the page while pages change, because its work ends with it. */
export function PrefixActions(props: {
  readonly prefix: WireBytes
  /** Of the page that is shown; undefined: there is none, or nothing on it. */
  readonly ts: number | undefined
  readonly onDeleted: () => void
}): JSX.Element {
  const { prefix, ts, onDeleted } = props
  const { server, access, at } = useSession()
  const work = useWork()
  const [count, setCount] = useState<number>()
  const mayDelete = ts !== undefined && access.may_write && at === undefined && shown(prefix) !== ''
  const remove = (): void => {
    setCount(undefined)
    work.run(async (say, signal) => {
      const query = `prefix=${idOf(prefix)}&limit=${DELETED_AT_ONCE}`
      let [deleted, cursor] = [0, '']
      try {
        do {
          const answer = await server.delete<{ deleted: number; cursor?: string }>(`/v1/kv?${query}${cursor}`, signal)
          deleted += answer.deleted
          cursor = answer.cursor === undefined ? '' : `&cursor=${encodeURIComponent(answer.cursor)}`
          say(`${keysText(deleted)} deleted`)
        } while (cursor !== '')
      } finally {
        onDeleted() // Stopped or refused half-way, it has deleted some.
      }
    })
  }
  const ask = (): void =>
    work.run(async (_, signal) => setCount((await server.db.countAsOf({ prefix: jsonBytes(prefix), signal })).count))
  const export_ = (asOf: number): void =>
    work.run((say, signal) =>
      download(pairsBelow(server, prefix, asOf, signal), (keys) => say(`${keysText(keys)} exported`)),
    )
  return (
    <div class="bar">
      {ts !== undefined && (
        <button type="button" class="small" disabled={work.isRunning} onClick={() => export_(ts)}>
          Export all
        </button>
      )}
      {mayDelete && count === undefined && (
        <button type="button" class="small" disabled={work.isRunning} onClick={ask}>
          Delete all…
        </button>
      )}
      {mayDelete && count !== undefined && (
        <>
          <span>
            {keysText(count)} below <bdi class="bytes">{shown(prefix)}</bdi>
          </span>
          <ConfirmedButton
            label={`Delete ${keysText(count)}`}
            question={`All keys that begin with ${shown(prefix)} will be deleted, in transactions of ${DELETED_AT_ONCE}.`}
            verb={`Delete all below ${shown(prefix)}`}
            onConfirm={remove}
          />
          <button type="button" class="small" onClick={() => setCount(undefined)}>
            Keep them
          </button>
        </>
      )}
      <Progress work={work} />
    </div>
  )
}

function keysText(count: number): string {
  return `${count.toLocaleString('en')} ${count === 1 ? 'key' : 'keys'}`
}
