import type { JSX } from 'preact'
import { useRef, useState } from 'preact/hooks'
import { isKvError } from '../client/index.js'
import type { Version } from './answers.js'
import { indentedJson, type JsonMistake, jsonMistake, textOfTokens } from './json-text.js'
import { Failure, Panel } from './parts.js'
import { Refused } from './server.js'
import { useSession } from './session.js'
import { bytesOfHex, hexOf, jsonBytes, type WireBytes, wireOf } from './wire-bytes.js'

interface Props {
  readonly name: WireBytes
  /** The version when the editor is opened; undefined: the key is absent, and must still be absent when the value is written. */
  readonly present: Version | undefined
  readonly onDone: () => void
  readonly onCancel: () => void
}

export function ValueEditor({ name, onDone, onCancel, ...opened }: Props): JSX.Element {
  const { server } = useSession()
  // Only what the text was made from is overwritten: a version that is loaded meanwhile has not been seen here.
  const [present] = useState(opened.present)
  const editable = present === undefined ? '' : editableText(present.value)
  const [isHex, setHex] = useState(editable === undefined)
  const [text, setText] = useState(() => editable ?? hexOf(jsonBytes(present?.value ?? '')))
  const [error, setError] = useState<unknown>()
  /** Text that the user was told is not JSON. */
  const [told, setTold] = useState<string>()
  const [isBusy, setBusy] = useState(false)
  const area = useRef<HTMLTextAreaElement>(null)

  const turn = (toHex: boolean): void => {
    const bytes = isHex ? bytesOfHex(text) : jsonBytes(text)
    const turned = bytes && (toHex ? hexOf(bytes) : editableText(wireOf(bytes)))
    if (turned !== undefined) {
      setHex(toHex)
      setText(turned)
    }
    setError(turned === undefined ? (bytes === undefined ? NO_HEX : NO_TEXT) : undefined)
  }

  const show = ({ line, column, expected, offset }: JsonMistake, end: string): void => {
    setError(`This is not JSON: in line ${line}, column ${column} ${expected}. ${end}`)
    area.current?.focus()
    area.current?.setSelectionRange(offset, offset + 1)
  }
  const format = (): void => {
    const mistake = jsonMistake(text)
    setError(undefined)
    if (mistake === undefined) setText(textOfTokens(indentedJson(text)))
    else show(mistake, '')
  }

  const save = async (event: Event): Promise<void> => {
    event.preventDefault()
    const value = isHex ? bytesOfHex(text) : jsonBytes(text)
    if (value === undefined) return setError(NO_HEX)
    const mistake = !isHex && isMeantAsJson(text, present?.value) ? jsonMistake(text) : undefined
    if (mistake !== undefined && told !== text) {
      setTold(text)
      return show(mistake, 'Nothing was saved yet.')
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
          ref={area}
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
          {!isHex && BEGINS_AS_JSON.test(text) && (
            <button type="button" onClick={format}>
              Format
            </button>
          )}
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

/** Text that begins like JSON, or contains signs of JSON and replaces JSON. */
function isMeantAsJson(text: string, replaced: WireBytes | undefined): boolean {
  if (typeof replaced !== 'string' || !BEGINS_AS_JSON.test(replaced)) return BEGINS_AS_JSON.test(text)
  return /[[\]{}"]/.test(text) && jsonMistake(replaced) === undefined
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
