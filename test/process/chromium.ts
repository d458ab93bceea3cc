import { existsSync } from 'node:fs'

/** Debian's package `chromium`. */
export const CHROMIUM = process.env['PERKV_TEST_CHROMIUM'] ?? '/usr/bin/chromium'

/** As root, and with nothing asked for beyond this machine. */
export const CHROMIUM_FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]

/** Says loudly what is not tested where there is no Chromium. */
export function hasChromium(what: string): boolean {
  const isThere = existsSync(CHROMIUM)
  if (!isThere) console.warn(`${what} is not tested in a browser: there is no ${CHROMIUM}; apt-get install chromium`)
  return isThere
}
