import { notEmpty } from '../../server/flags.js'
import { clientCommand } from './client-command.js'
import { shownText } from './shown.js'
import { timeOf } from './time-of.js'

export const pins = clientCommand({
  flags: { delete: { value: 'PIN', help: 'deletes the pin', variable: false } },
  about: `Prints the pins, each of which keeps a snapshot from collection until it expires. Back-ups that were broken off leave one. Deleting
it lets the collection go on; what reads its snapshot then fails.`,
  example: `$ perkv pins
{"pin":"2f1c...","ts":3677245337305088,"expires_at":"2026-11-23T05:00:00.000Z"}`,

  async run({ db, flags, screen }) {
    const given = flags.optional('delete')
    if (given !== undefined) {
      await db.admin.removePin(notEmpty(given))
      return screen.answer({ deleted: given.text })
    }
    await screen.list(await db.admin.listPins(), ['pin', 'ts', 'time', 'expires_at'], ({ pin, ts, expiresAt }) => {
      return [shownText(pin), String(ts), timeOf(ts), shownText(expiresAt)]
    })
    return undefined
  },
})
