import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { ObserverState, ParkedKey } from '../client/index.js'
import { ConfirmedButton } from './confirmed-button.js'
import { ConsumersPanel } from './consumers-panel.js'
import { ObserverForm } from './observer-form.js'
import { Empty, Failure, KeyText, Panel } from './parts.js'
import { rangeText } from './range-text.js'
import { readableMs, readableTime } from './readable-time.js'
import { addressOf } from './route.js'
import { reasonOf, type Server } from './server.js'
import { useSession } from './session.js'
import { useLoaded } from './use-loaded.js'
import { idOf, preview, shown, wireOf } from './wire-bytes.js'

const EVERY_MS = 2000
const PARKED_MAX = 200

type Observer = ObserverState<'bytes'>

async function parkedOf(server: Server, name: string): Promise<ParkedKey<'bytes'>[]> {
  const parked: ParkedKey<'bytes'>[] = []
  for await (const cell of server.db.observers.parked(name, { as: 'bytes' })) {
    parked.push(cell)
    if (parked.length === PARKED_MAX) break
  }
  return parked
}

export function ObserversView(): JSX.Element {
  const { server, access } = useSession()
  const observers = useLoaded(() => server.db.observers.list({ as: 'bytes' }), [server], EVERY_MS)
  const consumers = useLoaded(() => server.db.consumers.list({ as: 'bytes' }), [server], EVERY_MS)
  return (
    <>
      <header class="view-head">
        <h1>Observers and consumers</h1>
        <p class="lead">
          An observer hands each changed key of its range to a worker. A consumer is a place in the change feed that
          outlives its reader.
        </p>
      </header>
      <Failure error={observers.error ?? consumers.error} />
      {observers.value?.length === 0 && (
        <Empty>No observer is registered{access.prefixes && ' in a range that this token reaches'}.</Empty>
      )}
      {observers.value?.map((observer) => (
        <ObserverPanel key={observer.name} observer={observer} onChange={observers.reload} />
      ))}
      {access.may_write && <ObserverForm onDone={observers.reload} />}
      <ConsumersPanel consumers={consumers.value} onChange={consumers.reload} />
    </>
  )
}

function ObserverPanel({
  observer,
  onChange,
}: {
  readonly observer: Observer
  readonly onChange: () => void
}): JSX.Element {
  const { server, access } = useSession()
  const { name, state, pending, pendingIsExact, claimed, delayed, parked, lagMs, acks, conflicts, workers } = observer
  const [said, say] = useState('')
  const act = (action: () => Promise<unknown>) => (): void => {
    action().then(onChange, (error: unknown) => say(reasonOf(error)))
  }
  const facts: readonly (readonly [string, string | number])[] = [
    ['pending', `${pendingIsExact ? '' : 'about '}${pending}`],
    ['claimed', claimed],
    ['delayed', delayed],
    ['parked', parked],
    ['lag', readableMs(lagMs)],
    ['acknowledged', acks],
    ['conflicts', conflicts],
    ['workers', workers.length],
  ]
  return (
    <Panel
      title={name}
      aside={
        <>
          <span class="bytes quiet">{rangeText(observer)}</span>{' '}
          <span class={`badge ${state === 'paused' ? 'locked' : ''}`}>{state}</span>
        </>
      }
    >
      <dl class="numbers">
        {facts.map(([label, value]) => (
          <div key={label} class={label === 'parked' && parked > 0 ? 'alarm' : ''}>
            <dt>{label}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {access.may_write && (
        <div class="bar">
          {state === 'paused' ? (
            <button type="button" class="small" onClick={act(() => server.db.observers.resume(name))}>
              Resume
            </button>
          ) : (
            <button type="button" class="small" onClick={act(() => server.db.observers.pause(name))}>
              Pause
            </button>
          )}
          {parked > 0 && (
            <button type="button" class="small" onClick={act(() => server.db.observers.retry(name))}>
              Retry all parked
            </button>
          )}
          <ConfirmedButton
            label="Backfill"
            question={`Mark every key of ${name} (${rangeText(observer)}) as changed? Its workers run for each of them again.`}
            verb={`Backfill ${name}`}
            onConfirm={act(() => server.db.observers.backfill(name))}
          />
          <ConfirmedButton
            label="Delete"
            question={`Delete the observer ${name}? Its ${pending + parked} marked keys are forgotten: nobody runs for them.`}
            verb={`Delete ${name}`}
            onConfirm={act(() => server.db.observers.delete(name))}
          />
        </div>
      )}
      {said !== '' && (
        <p role="alert" class="failure">
          {said}
        </p>
      )}
      {parked > 0 && <Parked name={name} count={parked} onChange={onChange} />}
    </Panel>
  )
}

function Parked(props: { readonly name: string; readonly count: number; readonly onChange: () => void }): JSX.Element {
  const { name, count, onChange } = props
  const { server, access } = useSession()
  const parked = useLoaded(() => parkedOf(server, name), [server, name, count])
  const end = (key: Uint8Array, by: 'retry' | 'skip') => (): void => {
    const done = server.db.observers[by](name, [key])
    done.then(parked.reload, () => {}).finally(onChange)
  }
  return (
    <>
      <Failure error={parked.error} />
      <ul class="entries" aria-label={`Parked keys of ${name}`}>
        {parked.value?.map(({ key, error = '', attempts, parkedAt }) => (
          <li key={idOf(wireOf(key))} class="entry">
            <h3 class="entry-name">
              <a href={addressOf('key', wireOf(key))}>
                <KeyText of={wireOf(key)} />
              </a>
            </h3>
            <dl class="numbers">
              <div>
                <dt>parked</dt>
                <dd class="nowrap">
                  {readableTime(parkedAt)}{' '}
                  <span class="quiet">
                    after {attempts} {attempts === 1 ? 'attempt' : 'attempts'}
                  </span>
                </dd>
              </div>
              <div>
                <dt>error</dt>
                <dd>{preview(error, 200)}</dd>
              </div>
            </dl>
            {access.may_write && (
              <div class="bar">
                <button type="button" class="small" onClick={end(key, 'retry')}>
                  Retry
                </button>
                <ConfirmedButton
                  label="Skip"
                  question={`Skip ${shown(wireOf(key))}? Nobody runs for this change of it.`}
                  verb={`Skip ${preview(wireOf(key), 40)}`}
                  onConfirm={end(key, 'skip')}
                />
              </div>
            )}
          </li>
        ))}
      </ul>
    </>
  )
}
