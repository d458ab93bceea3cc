import { BASE64_FLAG, keyOf } from './arguments.js'
import { clientCommand, noteOfWait } from './client-command.js'
import { shown } from './shown.js'
import { timeOf } from './time-of.js'

export const watch = clientCommand({
  operands: ['KEY'],
  flags: { raw: { help: 'the values as they are, a line each', variable: false }, ...BASE64_FLAG },
  about: `Prints the value of KEY, if it has one, and then every version that is committed, until Ctrl-C. A deletion has the value null.
A server that goes away is waited for.`,
  example: `$ perkv watch config
{"key":"config","value":"1","commit_ts":3677245337305090}
{"key":"config","value":null,"commit_ts":3677245337921537}`,
  isEndless: true,

  async run({ db, flags, screen, signal, note }) {
    const key = keyOf(flags)
    const table = screen.table(['commit_ts', 'time', 'value'], { isLive: true })
    const onError = noteOfWait(note)
    // The feed has every version. db.watch leaves out those that are over before they are seen.
    for await (const { changes } of db.changes({ keys: [key], snapshot: true, as: 'bytes', signal, onError }))
      for (const change of changes) {
        const value = change.op === 'put' ? (change.value ?? null) : null
        const { commitTs } = change
        const expireTs = change.op === 'put' ? change.expireTs : undefined
        if (screen.form === 'lines') await screen.line({ key, value, commitTs, expireTs })
        else if (screen.form === 'raw')
          await screen.write(value === null ? '' : Buffer.concat([value, Buffer.from('\n')]))
        else
          await screen.write(
            table.add([String(commitTs), timeOf(commitTs), value === null ? `(${change.op})` : shown(value)]),
          )
      }
    return undefined
  },
})
