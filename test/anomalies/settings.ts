/**
 * The everyday run is small. The long form, for example:
 *
 *   CI=1 PERKV_TEST_SEED=1000 PERKV_TEST_TXNS=3000 PERKV_TEST_KILLS=40 npx vitest run test/anomalies test/process/history-kill.test.ts
 *
 * PERKV_TEST_TXNS: transactions of one history (of the kill test: between two kills). PERKV_TEST_KILLS: kill -9 of one
 * history. PERKV_TEST_SEED: where the choices of the clients come from; what the network and the disk do in between is
 * not repeated. PERKV_TEST_REPORT=1 prints the counts of each history. A long run may need --test-timeout=600000.
 */
export interface Settings {
  readonly seed: number
  readonly txns: number
  readonly kills: number
}

export function settings(defaults: Settings): Settings {
  return {
    seed: fromEnv('PERKV_TEST_SEED', defaults.seed),
    txns: fromEnv('PERKV_TEST_TXNS', defaults.txns),
    kills: fromEnv('PERKV_TEST_KILLS', defaults.kills),
  }
}

/** PERKV_TEST_FILLS: how often test/process/full-disk.test.ts fills its disk, each time with another rest of room. */
export const fills = fromEnv('PERKV_TEST_FILLS', 1)

function fromEnv(name: string, standard: number): number {
  const text = process.env[name]
  if (text === undefined) return standard
  if (!/^\d{1,9}$/.test(text)) throw new Error(`${name} must be a number, not ${text}`)
  return Number(text)
}

/** For those who run the long form: what was done. */
export function report(what: object): void {
  if (process.env['PERKV_TEST_REPORT'] === '1') process.stderr.write(`${JSON.stringify(what)}\n`)
}
