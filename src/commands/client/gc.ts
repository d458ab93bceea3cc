import { durationMs, UsageError } from '../../server/flags.js'
import { positiveOf } from './arguments.js'
import { clientCommand } from './client-command.js'
import { timeOf } from './time-of.js'

const LIFE_TIME_MS_MAX = Number.MAX_SAFE_INTEGER

export const gc = clientCommand({
  flags: {
    'life-time': { value: 'TIME', help: 'how long old versions stay readable, such as 10m', variable: false },
    'safe-point': { value: 'TS', help: 'collects up to here', variable: false },
  },
  about: `Collects old versions now, and prints the safe point: no snapshot below it can be read any more. held_back_by says what kept it
down. By default versions of the server's --gc-life-time stay.`,
  example: `$ perkv gc --life-time 1h
{"safe_point":3677238000000000,"versions_removed":1204}`,

  async run({ db, flags, screen }) {
    const safePoint = positiveOf(flags.optional('safe-point'))
    const lifeTime = flags.optional('life-time')
    if (safePoint !== undefined && lifeTime !== undefined)
      throw new UsageError('--safe-point does not go with --life-time')
    const lifeTimeMs = lifeTime && durationMs(lifeTime, 0, LIFE_TIME_MS_MAX)
    const run = await db.admin.collect({ safePoint, lifeTimeMs })
    if (screen.form !== 'table') return screen.answer({ ...run })
    return screen.answer({
      ...run,
      safePoint: run.safePoint === 0 ? '0' : `${run.safePoint}  ${timeOf(run.safePoint)}`,
    })
  },
})
