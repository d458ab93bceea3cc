// What the change feed and watchers cost, and how soon they are told.
import { beside } from './beside.mjs'
import { catchUp } from './catch-up.mjs'
import { everybody } from './everybody.mjs'
import { live } from './live.mjs'
import { told } from './told.mjs'
import { watchers } from './watchers.mjs'

export const changes = { live, catch_up: catchUp, told, watchers, everybody, beside }
