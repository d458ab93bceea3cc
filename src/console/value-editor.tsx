import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { isKvError } from '../client/index.js'
import type { Version } from './answers.js'
import { Failure, Panel } from './parts.js'
import { Refused, reasonOf } from './server.js'
import { useSession } from './session.js'
import { bytesOfHex, hexOf, jsonBytes, type WireBytes, wireOf } from './wire-bytes.js'

interface Props {
  readonly name: WireBytes
  /** The present version; undefined: the key is absent, and must still be absent when the value is written. */
  readonly present: Version | undefined
  readonly onDone: () => void
  readonly onCancel: () => void
}

export function ValueEditor({ name, present, onDone, onCancel }: Props): JSX.Element {
  const { server } = useSession()
  const editable = present === undefined ? '' : editableText(present.value)
  const [isHex, setHex] = useState(editable === undefined)
  const [text, setText] = useState(() => editable ?? hexOf(jsonBytes(present?.value ?? '')))
  const [error, setError] = useState<unknown>()
  /** Text that the user was told is not JSON. */
  const [told, setTold] = useState<string>()
  const [isBusy, setBusy] = useState(false)

  const turn = (toHex: boolean): void => {
    const bytes = isHex ? bytesOfHex(text) : jsonBytes(text)
    const turned = bytes && (toHex ? hexOf(bytes) : editableText(wireOf(bytes)))
    if (turned !== undefined) {
      setHex(toHex)
      setText(turned)
    }
    setError(turned === undefined ? (bytes === undefined ? NO_HEX : NO_TEXT) : undefined)
  }

  const save = async (event: Event): Promise<void> => {
    event.preventDefault()
    const value = isHex ? bytesOfHex(text) : jsonBytes(text)
    if (value === undefined) return setError(NO_HEX)
    const mistake = isHex ? undefined : jsonMistakeIn(text, present?.value)
    if (mistake !== undefined && told !== text) {
      setTold(text)
      return setError(`This is not JSON: ${mistake}. Nothing was saved yet.`)
    }
    setBusy(true)
    try {
      if (present === undefined) await server.db.put(jsonBytes(name), value, { ifAbsent: true })
      else await server.overwrite(name, value, present)
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
            {told === text ? 'Save anyway' : 'Save'}
          </button>
          <button type="button" onClick={onCancel}>
            Cancel
          </button>
          <label class="check">
            <input type="checkbox" checked={isHex} onChange={(event) => turn(event.currentTarget.checked)} /> as hex
          </label>
          <span class="quiet">{present === undefined ? 'If-None-Match: *' : `If-Match: "${present.commitTs}"`}</span>
        </div>
      </form>
    </Panel>
  )
}

const BEGINS_AS_JSON = /^\s*[[{]/
const NO_HEX = 'Hex is pairs of the digits 0 to f.'
const NO_TEXT = 'These bytes are no text that a browser can edit without changing it.'

/** undefined for bytes that are not UTF-8, and for text with carriage returns, which a text area drops. */
function editableText(value: WireBytes): string | undefined {
  return typeof value === 'string' && !value.includes('\r') ? value : undefined
}

/** The mistake in text that was meant as JSON: it begins like JSON, or contains signs of JSON and replaces JSON. */
function jsonMistakeIn(text: string, replaced: WireBytes | undefined): string | undefined {
  const isMeant =
    typeof replaced === 'string' && BEGINS_AS_JSON.test(replaced)
      ? /[[\]{}"]/.test(text) && mistakeIn(replaced) === undefined
      : BEGINS_AS_JSON.test(text)
  return isMeant ? mistakeIn(text) : undefined
}

function mistakeIn(json: string): string | undefined {
  try {
    JSON.parse(json)
    return undefined
  } catch (error) {
    return reasonOf(error)
  }
}

export function conflictOf(error: unknown): string | undefined {
  const commitTs = presentVersion(error)
  if (commitTs === undefined) return undefined
  const now = commitTs === 0 ? 'it is absent now' : `its version is ${commitTs} now`
  return `Somebody has changed this key since you read it: ${now}. Nothing was written.`
}

/** commitTs of the version found instead of the one seen; 0: the key is absent. */
function presentVersion(error: unknown): unknown {
  if (isKvError(error, 'precondition_failed')) return error.fields.commitTs
  if (!(error instanceof Refused)) return undefined
  if (error.code === 'write_conflict') return error.problem['conflict_commit_ts']
  return error.code === 'precondition_failed' ? error.problem['commit_ts'] : undefined
}
