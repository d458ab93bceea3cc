import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { afterPrefix } from '../bytes/key-range.js'
import { Failure, KeyText, Panel } from './parts.js'
import { addressOf, go } from './route.js'
import { type Found, searchKeys } from './search-keys.js'
import { isAbort } from './server.js'
import { useSession } from './session.js'
import { idOf, jsonBytes, shown, type WireBytes } from './wire-bytes.js'

const FIELD = 'search'
/** Whether the key `/` was pressed in a view without the field. */
let isWanted = false

/** `/` leads to the field, from every view. */
export function useSearchKey(): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const { key, target, ctrlKey, metaKey, altKey } = event
      if (key !== '/' || ctrlKey || metaKey || altKey) return
      if (target instanceof Element && target.matches('input, textarea, select')) return
      event.preventDefault()
      const field = document.getElementById(FIELD)
      isWanted = field === null
      if (field === null) go('browse')
      else field.focus()
    }
    addEventListener('keydown', onKey)
    return () => removeEventListener('keydown', onKey)
  }, [])
}

/** Finds keys below a prefix by a part of them. */
export function KeySearch({ prefix }: { readonly prefix: WireBytes }): JSX.Element {
  const { server, at } = useSession()
  const [text, setText] = useState('')
  const [found, setFound] = useState<Found>()
  const [error, setError] = useState<unknown>()
  const running = useRef<AbortController | undefined>(undefined)
  const [isRunning, setRunning] = useState(false)
  const field = useRef<HTMLInputElement>(null)
  useEffect(() => {
    if (isWanted) field.current?.focus()
    isWanted = false
    return () => running.current?.abort()
  }, [])

  const stop = (): void => {
    running.current?.abort()
    setRunning(false)
  }
  const run = async (before: Found): Promise<void> => {
    stop()
    const own = new AbortController()
    running.current = own
    setRunning(true)
    setError(undefined)
    try {
      for await (const more of searchKeys(server, before, own.signal)) {
        if (own.signal.aborted) return
        setFound(more)
      }
    } catch (failure) {
      if (own.signal.aborted || isAbort(failure)) return
      setError(failure)
    }
    setRunning(false)
  }
  const begin = (event: Event): void => {
    event.preventDefault()
    if (text === '') return
    const start = jsonBytes(prefix)
    void run({ text, prefix, end: afterPrefix(start), next: start, ts: at, exact: [], keys: [], read: 0 })
  }

  return (
    <search>
      <form class="bar" onSubmit={begin}>
        <label for={FIELD}>Search</label>
        <input
          ref={field}
          id={FIELD}
          type="search"
          class="wide bytes"
          placeholder="a part of a key, or all of it"
          title="The key / leads here"
          value={text}
          spellcheck={false}
          autocomplete="off"
          autocapitalize="off"
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <button type="submit" disabled={text === ''}>
          Search
        </button>
      </form>
      {(found !== undefined || error !== undefined) && (
        <Results
          found={found}
          error={error}
          isRunning={isRunning}
          onStop={stop}
          onMore={() => found && void run(found)}
          onClose={() => {
            stop()
            setFound(undefined)
            setError(undefined)
            field.current?.focus()
          }}
        />
      )}
    </search>
  )
}

function Results(props: {
  readonly found: Found | undefined
  readonly error: unknown
  readonly isRunning: boolean
  readonly onStop: () => void
  readonly onMore: () => void
  readonly onClose: () => void
}): JSX.Element {
  const { found, error, isRunning, onStop, onMore, onClose } = props
  const { text = '', exact = [], keys = [], read = 0, next } = found ?? {}
  const progress = `${exact.length + keys.length} found among ${read.toLocaleString('en')} keys`
  return (
    <Panel title={`Keys with “${shown(text)}”`}>
      <div class="bar">
        <span role="status">{isRunning ? `${progress} so far` : progress}</span>
        {isRunning && (
          <button type="button" class="small" onClick={onStop}>
            Stop
          </button>
        )}
        {!isRunning && next !== undefined && (
          <button type="button" class="small" onClick={onMore}>
            Search on
          </button>
        )}
        <button type="button" class="small" onClick={onClose}>
          Close
        </button>
      </div>
      <Failure error={error} />
      <ul class="hits">
        {exact.map((key) => (
          <li key={`exact ${idOf(key)}`}>
            <Hit name={key} /> <span class="tag">exactly</span>
          </li>
        ))}
        {keys.map((key) => (
          <li key={idOf(key)}>
            <Hit name={key} />
          </li>
        ))}
      </ul>
    </Panel>
  )
}

function Hit({ name }: { readonly name: WireBytes }): JSX.Element {
  return (
    <a href={addressOf('key', name)}>
      <KeyText of={name} />
    </a>
  )
}
