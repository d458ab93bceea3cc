import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { ConsumerState, ObserverState, ParkedKey } from '../client/index.js'
import { Empty, Failure, KeyText, Panel, Scroll, Ts } from './parts.js'
import { readableMs, readableTime } from './readable-time.js'
import { addressOf } from './route.js'
import { reasonOf, type Server } from './server.js'
import { useSession } from './session.js'
import { useLoaded } from './use-loaded.js'
import { idOf, preview, shown, wireOf } from './wire-bytes.js'

const EVERY_MS = 2000
const PARKED_MAX = 200

type Observer = ObserverState<'bytes'>
type Consumer = ConsumerState<'bytes'>

function rangeText({ prefix, start, end }: Pick<Observer, 'prefix' | 'start' | 'end'>): string {
  if (prefix !== undefined) return prefix.length === 0 ? 'every key' : `${shown(wireOf(prefix))}*`
  return `[${start === undefined ? '' : shown(wireOf(start))}, ${end === undefined ? '' : shown(wireOf(end))})`
}

async function parkedOf(server: Server, name: string): Promise<ParkedKey<'bytes'>[]> {
  const parked: ParkedKey<'bytes'>[] = []
  for await (const cell of server.db.observers.parked(name, { as: 'bytes' })) {
    parked.push(cell)
    if (parked.length === PARKED_MAX) break
  }
  return parked
}

export function ObserversView(): JSX.Element {
  const { server } = useSession()
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
      {observers.value?.length === 0 && <Empty>No observer is registered.</Empty>}
      {observers.value?.map((observer) => (
        <ObserverPanel key={observer.name} observer={observer} onChange={observers.reload} />
      ))}
      <Panel title="Consumers">
        {consumers.value === undefined || consumers.value.length === 0 ? (
          <Empty>{consumers.value === undefined ? 'Loading…' : 'No consumer is registered.'}</Empty>
        ) : (
          <Consumers consumers={consumers.value} />
        )}
      </Panel>
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
    <Scroll label={`Parked keys of ${name}`}>
      <Failure error={parked.error} />
      <table>
        <thead>
          <tr>
            <th scope="col">parked key</th>
            <th scope="col">error</th>
            <th scope="col">attempts</th>
            <th scope="col">parked</th>
            {access.may_write && <th scope="col">then</th>}
          </tr>
        </thead>
        <tbody>
          {parked.value?.map(({ key, error = '', attempts, parkedAt }) => (
            <tr key={idOf(wireOf(key))}>
              <th scope="row">
                <a href={addressOf('key', wireOf(key))}>
                  <KeyText of={wireOf(key)} />
                </a>
              </th>
              <td>{preview(error, 200)}</td>
              <td>{attempts}</td>
              <td class="nowrap">{readableTime(parkedAt)}</td>
              {access.may_write && (
                <td class="nowrap">
                  <button type="button" class="small" onClick={end(key, 'retry')}>
                    Retry
                  </button>{' '}
                  <button type="button" class="small" onClick={end(key, 'skip')}>
                    Skip
                  </button>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  )
}

function Consumers({ consumers }: { readonly consumers: readonly Consumer[] }): JSX.Element {
  return (
    <Scroll label="Consumers">
      <table>
        <thead>
          <tr>
            <th scope="col">name</th>
            <th scope="col">range</th>
            <th scope="col">position</th>
            <th scope="col">lag</th>
            <th scope="col">holds for</th>
          </tr>
        </thead>
        <tbody>
          {consumers.map((consumer) => (
            <tr key={consumer.name}>
              <th scope="row">{consumer.name}</th>
              <td class="bytes">{rangeText(consumer)}</td>
              <td>
                <Ts ts={consumer.position} />
              </td>
              <td class="nowrap">
                {readableMs(consumer.lagMs)} {consumer.isLost && <span class="badge bad">lost</span>}
              </td>
              <td class="nowrap">{readableMs(consumer.holdMs)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  )
}
