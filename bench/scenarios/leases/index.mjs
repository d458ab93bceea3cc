// Many leases: what their renewals take of a core, and how long they let others wait.
import { renewals } from './renewals.mjs'
import { turns } from './turns.mjs'

export const leases = { renewals, turns }
