import type { Operations } from '../operation.js'
import { administration } from './administration.js'
import { changes } from './changes.js'
import { keys } from './keys.js'
import { leases } from './leases.js'
import { observers } from './observers.js'
import { percolator } from './percolator.js'
import { server } from './server.js'
import { transactions } from './transactions.js'
import { webhooks } from './webhooks.js'

/** Every route of the server, in the order of the document. A new route gets its entry in the file of its area. */
export const OPERATIONS: Operations = {
  ...keys,
  ...transactions,
  ...observers,
  ...changes,
  ...webhooks,
  ...leases,
  ...percolator,
  ...administration,
  ...server,
}
