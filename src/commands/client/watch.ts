import { BASE64_FLAG, keyArgument } from './arguments.js'
import { clientCommand, noteOfWait } from './client-command.js'
import { shown } from './shown.js'
import { timeOf } from './time-of.js'

export const watch = clientCommand({
  operands: ['KEY'],
  flags: { raw: { help: 'the values as they are, a line each', variable: false }, ...BASE64_FLAG },
  about: `Prints the value of KEY, if it has one, and then the latest whenever it is another, until Ctrl-C. Of versions that follow each other at
once only the last may be printed: perkv changes has all. An absent key has the value null. A server that goes away is waited for.`,
  example: `$ perkv watch config
{"key":"config","value":"1","commit_ts":3677245337305090}
{"key":"config","value":null,"commit_ts":3677245337921537}`,
  isEndless: true,

  async run({ db, flags, screen, signal, note }) {
    const key = keyArgument(flags)
    const table = screen.table(['commit_ts', 'time', 'value'], { isLive: true })
    let isFirst = true
    for await (const state of db.watch(key, { as: 'bytes', signal, onError: noteOfWait(note) })) {
      const { value = null, commitTs, expireTs } = state
      const isPresent = value !== null || !isFirst
      isFirst = false
      if (!isPresent) continue
      if (screen.form === 'lines') await screen.line({ key, value, commitTs, expireTs })
      else if (screen.form === 'raw')
        await screen.write(value === null ? '' : Buffer.concat([value, Buffer.from('\n')]))
      else
        await screen.write(table.add([String(commitTs), timeOf(commitTs), value === null ? '(absent)' : shown(value)]))
    }
    return undefined
  },
})
