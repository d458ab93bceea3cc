import { snakeCase } from '../../bytes/field-names.js'
import { clientCommand } from './client-command.js'
import { shownText } from './shown.js'
import { wireJson } from './wire-json.js'

export const status = clientCommand({
  about: 'Prints the state of the server, as GET /v1/status has it.',
  example: `$ perkv status | jq -c '[.version, .writable, .counts]'
["0.1.0",true,{"locks":0,"open_transactions":0}]`,

  async run({ db, screen }) {
    const answer = await db.status()
    if (screen.form === 'table') await screen.record(rowsOf(answer, ''))
    else await screen.line(answer)
    return undefined
  },
})

/** One row per field. Fields of objects get names such as `feed.lag_ms`. */
function rowsOf(fields: object, path: string): [string, string][] {
  return Object.entries(fields).flatMap(([name, value]): [string, string][] => {
    const at = `${path}${snakeCase(name)}`
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return rowsOf(value, `${at}.`)
    return [[at, typeof value === 'string' ? shownText(value) : wireJson(value)]]
  })
}
