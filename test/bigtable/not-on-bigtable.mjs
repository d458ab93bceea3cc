import { readFileSync } from 'node:fs'

/** By reason and file: the full names of tests and of groups of tests, or `all`. @type {Record<string, Record<string, 'all' | string[]>>} */
export const NOT_ON_BIGTABLE = JSON.parse(readFileSync(new URL('not-on-bigtable.json', import.meta.url), 'utf8'))

/** Whether tests on the list run as well, to see which of them pass by now. */
const runsListed = process.env['PERKV_TEST_LISTED'] === 'run'

/** The name of a test, or of a group, under which it is listed. */
export const isNamed = (/** @type {string} */ name, /** @type {string} */ entry) =>
  name === entry || name.startsWith(`${entry} > `)

/** @returns {string | undefined} why the test cannot pass on the store on Bigtable. */
export function reasonOf(/** @type {string} */ file, /** @type {string} */ name) {
  for (const [reason, files] of Object.entries(NOT_ON_BIGTABLE)) {
    const entries = files[file]
    if (entries === 'all' || entries?.some((entry) => isNamed(name, entry))) return reason
  }
  return undefined
}

/** Files of which nothing runs. */
export const filesLeftOut = () =>
  runsListed
    ? []
    : Object.values(NOT_ON_BIGTABLE).flatMap((files) => Object.keys(files).filter((file) => files[file] === 'all'))

export const reasonToSkip = (/** @type {string} */ file, /** @type {string} */ name) =>
  runsListed ? undefined : reasonOf(file, name)
