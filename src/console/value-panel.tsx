import type { JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { indentedJson, jsonMistake, type Token } from './json-text.js'
import { Panel } from './parts.js'
import { hexDump, jsonBytes, readableSize, sizeOf, textOf, type WireBytes } from './wire-bytes.js'

type Format = 'text' | 'json' | 'hex'

/** Longer JSON is not parsed, and longer texts are shown in part until all is asked for. */
const JSON_CHARACTERS_MAX = 256 * 1024
const SHOWN_CHARACTERS = 32 * 1024
const SHOWN_BYTES = 4 * 1024

function jsonIn(value: WireBytes): readonly Token[] | undefined {
  if (typeof value !== 'string' || value.length > JSON_CHARACTERS_MAX || !/^\s*[[{"]/.test(value)) return undefined
  return jsonMistake(value) === undefined ? indentedJson(value) : undefined
}

export function ValuePanel({
  value,
  actions,
}: {
  readonly value: WireBytes
  readonly actions?: JSX.Element
}): JSX.Element {
  const json = useMemo(() => jsonIn(value), [value])
  const formats: Format[] =
    typeof value === 'string' ? (json === undefined ? ['text', 'hex'] : ['json', 'text', 'hex']) : ['hex']
  const [chosen, choose] = useState<Format>()
  const [isWhole, setWhole] = useState(false)
  const format = chosen !== undefined && formats.includes(chosen) ? chosen : (formats[0] ?? 'hex')
  const { text, isCut } = shownAs(value, format, json, isWhole)
  return (
    <Panel title="Value" aside={<span class="quiet">{readableSize(sizeOf(value))}</span>} class="value">
      <div class="bar">
        <fieldset class="tabs">
          <legend class="unseen">Show the value as</legend>
          {formats.map((one) => (
            <button type="button" key={one} aria-pressed={one === format} onClick={() => choose(one)}>
              {{ text: 'Text', json: 'JSON', hex: 'Hex' }[one]}
            </button>
          ))}
        </fieldset>
        {actions}
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: keyboards scroll only what has the focus. */}
      <pre class="value-text" tabIndex={0}>
        {text === '' ? <span class="quiet">empty</span> : text}
      </pre>
      {isCut && (
        <button type="button" class="more" onClick={() => setWhole(true)}>
          Show all {readableSize(sizeOf(value))}
        </button>
      )}
    </Panel>
  )
}

function shownAs(value: WireBytes, format: Format, json: readonly Token[] | undefined, isWhole: boolean) {
  if (format === 'hex') {
    const bytes = jsonBytes(value)
    const isCut = !isWhole && bytes.length > SHOWN_BYTES
    return { text: hexDump(isCut ? bytes.subarray(0, SHOWN_BYTES) : bytes), isCut }
  }
  if (format === 'json' && json !== undefined) return coloured(json, isWhole)
  const text = textOf(jsonBytes(value)) ?? ''
  const isCut = !isWhole && text.length > SHOWN_CHARACTERS
  return { text: isCut ? text.slice(0, SHOWN_CHARACTERS) : text, isCut }
}

function coloured(tokens: readonly Token[], isWhole: boolean) {
  const text: (JSX.Element | string)[] = []
  let left = SHOWN_CHARACTERS
  for (const { kind, text: part } of tokens) {
    if (left <= 0 && !isWhole) return { text, isCut: true }
    const cut = isWhole ? part : part.slice(0, left)
    left -= part.length
    text.push(kind === 'sign' ? cut : <span class={`json-${kind}`}>{cut}</span>)
  }
  return { text, isCut: left < 0 && !isWhole }
}
