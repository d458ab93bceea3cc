import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { Panel } from './parts.js'
import { hexDump, jsonBytes, readableSize, sizeOf, textOf, type WireBytes } from './wire-bytes.js'

type Format = 'text' | 'json' | 'hex'

/** Longer JSON is not parsed, and longer texts are shown in part until all is asked for. */
const JSON_CHARACTERS_MAX = 256 * 1024
const SHOWN_CHARACTERS = 32 * 1024
const SHOWN_BYTES = 4 * 1024

function prettyJson(value: WireBytes): string | undefined {
  if (typeof value !== 'string' || value.length > JSON_CHARACTERS_MAX || !/^\s*[[{"]/.test(value)) return undefined
  try {
    return JSON.stringify(JSON.parse(value), undefined, 2)
  } catch {
    return undefined
  }
}

export function ValuePanel({
  value,
  actions,
}: {
  readonly value: WireBytes
  readonly actions?: JSX.Element
}): JSX.Element {
  const json = prettyJson(value)
  const formats: Format[] =
    typeof value === 'string' ? (json === undefined ? ['text', 'hex'] : ['json', 'text', 'hex']) : ['hex']
  const [chosen, choose] = useState<Format>()
  const [isWhole, setWhole] = useState(false)
  const format = chosen !== undefined && formats.includes(chosen) ? chosen : (formats[0] ?? 'hex')
  const { text, isCut } = textFor(value, format, json, isWhole)
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

function textFor(value: WireBytes, format: Format, json: string | undefined, isWhole: boolean) {
  if (format === 'hex') {
    const bytes = jsonBytes(value)
    const isCut = !isWhole && bytes.length > SHOWN_BYTES
    return { text: hexDump(isCut ? bytes.subarray(0, SHOWN_BYTES) : bytes), isCut }
  }
  const text = format === 'json' && json !== undefined ? json : (textOf(jsonBytes(value)) ?? '')
  const isCut = !isWhole && text.length > SHOWN_CHARACTERS
  return { text: isCut ? text.slice(0, SHOWN_CHARACTERS) : text, isCut }
}
