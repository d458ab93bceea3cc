import type { KeyState } from '../../changes/rules/changes-api.js'
import type { Timestamp } from '../../timestamp.js'
import { type Plain, pairToJson, toJson } from './wire.js'

export function eventText(name: string, data: string, id?: string | Timestamp): string {
  const idLine = id === undefined ? '' : `id: ${id}\n`
  return `event: ${name}\ndata: ${data}\n${idLine}\n`
}

export function lineText(type: string, data: string): string {
  return `{"type":"${type}",${data.slice(1)}\n`
}

export function errorText(format: 'events' | 'ndjson', problem: Plain): string {
  const data = toJson(problem)
  return format === 'events' ? eventText('error', data) : lineText('error', data)
}

export function stateText(key: Uint8Array, state: KeyState): string {
  const { commitTs } = state
  if (!state.found) return eventText('absent', pairToJson({ key, commitTs }), commitTs)
  return eventText('value', pairToJson({ key, value: state.value, commitTs, expireTs: state.expireTs }), commitTs)
}
