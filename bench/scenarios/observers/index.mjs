// What observers cost, how soon they run, and an index that they keep beside one that is rebuilt.
import { begun } from './begun.mjs'
import { churn } from './churn.mjs'
import { claims } from './claims.mjs'
import { costs } from './costs.mjs'
import { found } from './found.mjs'
import { runs } from './runs.mjs'

export const observers = { costs, runs, begun, claims, found, churn }
