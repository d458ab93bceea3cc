// How PerKV does with more connections, keys, locks, versions and time.
import { connections } from './connections.mjs'
import { gc } from './gc.mjs'
import { keys } from './keys.mjs'
import { mixed } from './mixed.mjs'
import { startup } from './startup.mjs'
import { uncached } from './uncached.mjs'

export const scale = { connections, keys, uncached, mixed, startup, gc }
