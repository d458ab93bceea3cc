import type { KeyState } from '../../changes/rules/changes-api.js'
import type { Timestamp } from '../../timestamp.js'
import { type Plain, pairToJson, toJson } from './wire.js'

/** @param data one line of JSON. */
export function eventText(name: string, data: string, id?: string | Timestamp): string {
  const idLine = id === undefined ? '' : `id: ${id}\n`
  return `event: ${name}\ndata: ${data}\n${idLine}\n`
}

/** @param data the text of a JSON object with a field or more. */
export function lineText(type: string, data: string): string {
  return `{"type":"${type}",${data.slice(1)}\n`
}

export function errorText(format: 'events' | 'ndjson', problem: Plain): string {
  const data = toJson(problem)
  return format === 'events' ? eventText('error', data) : lineText('error', data)
}

/** The state of a key that is watched. */
export function stateText(key: Uint8Array, state: KeyState): string {
  const { commitTs } = state
  if (!state.found) return eventText('absent', pairToJson({ key, commitTs }), commitTs)
  return eventText('value', pairToJson({ key, value: state.value, commitTs, expireTs: state.expireTs }), commitTs)
}
