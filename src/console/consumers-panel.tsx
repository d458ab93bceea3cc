import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { ConsumerState } from '../client/index.js'
import { ConfirmedButton } from './confirmed-button.js'
import { Empty, Panel, Ts } from './parts.js'
import { rangeText } from './range-text.js'
import { PER_MS, readableMs } from './readable-time.js'
import { reasonOf } from './server.js'
import { useSession } from './session.js'
import { typedTime } from './typed-time.js'

type Consumer = ConsumerState<'bytes'>

export function ConsumersPanel(props: {
  readonly consumers: readonly Consumer[] | undefined
  readonly onChange: () => void
}): JSX.Element {
  const { consumers, onChange } = props
  const { access } = useSession()
  const [said, say] = useState('')
  const none = `No consumer is registered${access.prefixes === undefined ? '' : ' in a range that this token reaches'}.`
  return (
    <Panel title="Consumers">
      <p role="status" class="said">
        {said}
      </p>
      {consumers === undefined || consumers.length === 0 ? (
        <Empty>{consumers === undefined ? 'Loading…' : none}</Empty>
      ) : (
        <ul class="entries" aria-label="Consumers">
          {consumers.map((consumer) => (
            <Line key={consumer.name} consumer={consumer} say={say} onChange={onChange} />
          ))}
        </ul>
      )}
    </Panel>
  )
}

function Line(props: {
  readonly consumer: Consumer
  readonly say: (said: string) => void
  readonly onChange: () => void
}): JSX.Element {
  const { consumer, say, onChange } = props
  const { server, access } = useSession()
  const { name, position, lagMs, isLost, holdMs } = consumer
  const [isMoving, move] = useState(false)
  const act = (action: () => Promise<unknown>, done: string): void => {
    action()
      .then(
        () => say(done),
        (error: unknown) => say(reasonOf(error)),
      )
      .finally(onChange)
  }
  const reset = (sinceTs?: number): void => {
    move(false)
    const where = sinceTs === undefined ? 'now' : String(sinceTs)
    act(() => server.db.consumers.reset(name, { sinceTs }), `${name} stands at ${where}.`)
  }
  return (
    <li class="entry">
      <h3 class="entry-name">
        {name} <span class="bytes quiet">{rangeText(consumer)}</span>
      </h3>
      <dl class="numbers">
        <div>
          <dt>position</dt>
          <dd>
            <Ts ts={position} />
          </dd>
        </div>
        <div>
          <dt>lag</dt>
          <dd class="nowrap">
            {readableMs(lagMs)} {isLost && <span class="badge bad">lost</span>}
          </dd>
        </div>
        <div>
          <dt>holds for</dt>
          <dd class="nowrap">{readableMs(holdMs)}</dd>
        </div>
      </dl>
      {access.may_write && (
        <div class="bar">
          <button type="button" class="small" aria-expanded={isMoving} onClick={() => move(!isMoving)}>
            Reset<span class="unseen"> {name}</span>
          </button>
          <ConfirmedButton
            label="Delete"
            question={`Delete the consumer ${name}? Its position is forgotten.`}
            verb={`Delete ${name}`}
            onConfirm={() => act(() => server.db.consumers.delete(name), `${name} is deleted.`)}
          />
        </div>
      )}
      {isMoving && <Reset name={name} position={position} onReset={reset} />}
    </li>
  )
}

/** Where a consumer goes on: both ways it skips changes, or is told some again, so the name is on the button. */
function Reset(props: {
  readonly name: string
  readonly position: number
  readonly onReset: (sinceTs?: number) => void
}): JSX.Element {
  const { name, position, onReset } = props
  const { safePoint } = useSession()
  const [text, setText] = useState(String(position))
  const { ts, isNow, effect } = effectOf(text, position, safePoint)
  return (
    <form
      class="bar whole"
      onSubmit={(event) => {
        event.preventDefault()
        if (ts !== undefined) onReset(isNow ? undefined : ts)
      }}
    >
      <label for={`reset-${name}`}>New position of {name}</label>
      <input
        id={`reset-${name}`}
        value={text}
        aria-describedby={`effect-${name}`}
        onInput={({ currentTarget }) => setText(currentTarget.value)}
      />
      <button type="submit" class="small danger" disabled={ts === undefined}>
        Move {name} there
      </button>
      <button type="button" class="small danger" onClick={() => onReset()}>
        Move {name} to now
      </button>
      <span id={`effect-${name}`} class="quiet">
        {ts !== undefined && <Ts ts={ts} />} {effect}
      </span>
    </form>
  )
}

/** @returns no `ts` where there is no place to go to. */
function effectOf(
  text: string,
  position: number,
  safePoint: number,
): { readonly ts?: number; readonly isNow?: boolean; readonly effect: string } {
  // The clock of this place may be behind that of the server.
  const nowTs = Math.max(position, Date.now() * PER_MS)
  try {
    const typed = typedTime(text, nowTs, safePoint)
    const ts = typed ?? nowTs
    if (ts === position) return { effect: 'It stands there already.' }
    const effect = ts > position ? 'What lies between is skipped.' : 'What lies between is handed out again.'
    return { ts, isNow: typed === undefined, effect }
  } catch (error) {
    return { effect: reasonOf(error) }
  }
}
