import type { AskKind, Asks } from './signed-ask.js'

/** A server that is asked to reach another one has as long for it as the asker waits. */
const REACH_MS_MAX = 1000
/** So many of the other servers are asked. */
const ASKED_MAX = 3

/** Answered by whoever is reached. A replayed ask learns nothing. */
export const PRESENCE: AskKind<true, true> = {
  name: 'presence',
  askBytesMax: 4096,
  answerBytesMax: 4096,
  ask: { encode: () => ({}), decode: () => true },
  answer: { encode: () => ({}), decode: () => true },
}

/** Asks a server whether it reaches the one at `url`. A replayed ask makes it ask a server of the table once more. */
export const REACH: AskKind<{ readonly target: string }, { readonly isReached: boolean }> = {
  name: 'reach',
  askBytesMax: 4096,
  answerBytesMax: 4096,
  ask: {
    encode: ({ target }) => ({ target }),
    decode: ({ target }) => (typeof target === 'string' && URL.canParse(target) ? { target } : undefined),
  },
  answer: {
    encode: ({ isReached }) => ({ is_reached: isReached }),
    decode: ({ is_reached: isReached }) => (typeof isReached === 'boolean' ? { isReached } : undefined),
  },
}

/** The answer to `REACH`. */
export async function reach(ask: Asks['ask'], target: string): Promise<{ readonly isReached: boolean }> {
  const presence = ask(PRESENCE, target, true, AbortSignal.timeout(REACH_MS_MAX))
  return { isReached: await presence.catch(() => false) }
}

/**
 * Asks other servers whether they reach the one at `url`.
 * @returns true when one does; undefined when none has answered, because all of them are away.
 */
export async function isReachedByOthers(
  ask: Asks['ask'],
  url: string,
  others: readonly string[],
): Promise<boolean | undefined> {
  const signal = AbortSignal.timeout(2 * REACH_MS_MAX)
  const answers = others.slice(0, ASKED_MAX).map((other) => ask(REACH, other, { target: url }, signal))
  const found = answers.map(async (answer) => {
    if (!(await answer).isReached) throw new Error('it does not reach this server')
  })
  if (
    await Promise.any(found).then(
      () => true,
      () => false,
    )
  )
    return true
  const outcomes = await Promise.allSettled(answers)
  return outcomes.some(({ status }) => status === 'fulfilled') ? false : undefined
}
