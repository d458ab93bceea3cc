// On Google's Bigtable server in memory.
import { withServers } from '../harness/emulated.mjs'
import { scenariosOn } from './shared-table.mjs'

export const scenarios = scenariosOn(withServers)
