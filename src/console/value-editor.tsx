import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { isKvError } from '../client/index.js'
import { Failure, Panel } from './parts.js'
import { useSession } from './session.js'
import { bytesOf, bytesOfHex, hexOf, type WireBytes } from './wire-bytes.js'

interface Props {
  readonly name: WireBytes
  /** What it is now; undefined: the key is absent, and has to be so still when this is written. */
  readonly present: { readonly value: WireBytes; readonly commitTs: number } | undefined
  readonly onDone: () => void
  readonly onCancel: () => void
}

/** Writes a value over the version that the reader has seen, and over no other. */
export function ValueEditor({ name, present, onDone, onCancel }: Props): JSX.Element {
  const { server } = useSession()
  const [isHex, setHex] = useState(present !== undefined && typeof present.value !== 'string')
  const [text, setText] = useState(() => {
    if (present === undefined) return ''
    return typeof present.value === 'string' ? present.value : hexOf(bytesOf(present.value))
  })
  const [error, setError] = useState<unknown>()
  const [isBusy, setBusy] = useState(false)

  const save = async (event: Event): Promise<void> => {
    event.preventDefault()
    const value = isHex ? bytesOfHex(text) : bytesOf(text)
    if (value === undefined) return setError('Hex is pairs of the digits 0 to f.')
    setBusy(true)
    try {
      const condition = present === undefined ? { ifAbsent: true } : { ifMatch: present.commitTs }
      await server.db.put(bytesOf(name), value, condition)
      onDone()
    } catch (failure) {
      setError(conflictOf(failure) ?? failure)
      setBusy(false)
    }
  }

  return (
    <Panel title={present === undefined ? 'New value' : 'Edit value'}>
      <form onSubmit={save}>
        <label class="unseen" for="value-text">
          Value
        </label>
        <textarea
          id="value-text"
          rows={10}
          spellcheck={false}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <Failure error={error} />
        <div class="bar">
          <button type="submit" class="chief" disabled={isBusy}>
            Save
          </button>
          <button type="button" onClick={onCancel}>
            Cancel
          </button>
          <label class="check">
            <input type="checkbox" checked={isHex} onChange={(event) => setHex(event.currentTarget.checked)} /> as hex
          </label>
          <span class="quiet">{present === undefined ? 'If-None-Match: *' : `If-Match: "${present.commitTs}"`}</span>
        </div>
      </form>
    </Panel>
  )
}

/** A sentence for the one failure that needs explaining. */
export function conflictOf(error: unknown): string | undefined {
  if (!isKvError(error, 'precondition_failed')) return undefined
  const { commitTs } = error.fields
  const now = commitTs === 0 ? 'it is absent now' : `its version is ${commitTs} now`
  return `Somebody has changed this key since you read it: ${now}. Nothing was written.`
}
