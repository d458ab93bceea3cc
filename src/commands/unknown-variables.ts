import { nameInError, nearestName } from '../errors/nearest-name.js'
import { type Flags, variablesOf } from '../server/flags.js'
import { COMMANDS } from './command-table.js'

const PREFIX = 'PERKV_'
/** Variables without a flag: for clients, and for the command that `perkv lease` runs. */
const WITHOUT_FLAGS = ['PERKV_TOKEN', 'PERKV_LEASE', 'PERKV_FENCE']
/** Variables set by tests, and those that Kubernetes gives every container where a service is called perkv. */
const OF_OTHERS = /^PERKV_((TEST|DOCS|SIM|FLIPS)(_|$)|SERVICE_(HOST|PORT)|PORT_\d+_)/

/**
 * A warning in one line about unknown variables that look like PerKV's.
 * @param flags of the command that runs. The flags of other commands are loaded only for a variable that it does not know.
 */
export async function unknownVariables(flags: Flags, env: NodeJS.ProcessEnv): Promise<string | undefined> {
  const given = Object.keys(env).filter((name) => name.startsWith(PREFIX) && !OF_OTHERS.test(name))
  const known = new Set([...WITHOUT_FLAGS, ...variablesOf(flags)])
  if (given.every((name) => known.has(name))) return undefined
  for (const { load } of COMMANDS.values()) for (const name of variablesOf((await load()).flags)) known.add(name)
  const unknown = given.filter((name) => !known.has(name))
  if (unknown.length === 0) return undefined
  return `PerKV knows no variable ${unknown.map((name) => `${nameInError(name)}${meant(name, known)}`).join(', ')}`
}

/** Compared without the common prefix, which would make short names similar to each other. */
function meant(name: string, known: Iterable<string>): string {
  const rest = (variable: string): string => variable.slice(PREFIX.length)
  const nearest = nearestName(rest(name), [...known].map(rest))
  return nearest === undefined ? '' : ` (did you mean ${PREFIX}${nearest}?)`
}
