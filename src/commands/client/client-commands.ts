import { changes } from './changes.js'
import type { ClientCommand } from './client-command.js'
import { consumers } from './consumers.js'
import { count } from './count.js'
import { del } from './del.js'
import { gc } from './gc.js'
import { get } from './get.js'
import { leases } from './leases.js'
import { locks } from './locks.js'
import { mvcc } from './mvcc.js'
import { observers } from './observers.js'
import { pins } from './pins.js'
import { put } from './put.js'
import { scan } from './scan.js'
import { status } from './status.js'
import { touch } from './touch.js'
import { txn } from './txn.js'
import { watch } from './watch.js'

export const CLIENT_COMMANDS = {
  get,
  put,
  del,
  touch,
  scan,
  count,
  txn,
  watch,
  changes,
  status,
  locks,
  mvcc,
  observers,
  leases,
  consumers,
  pins,
  gc,
} as const satisfies Readonly<Record<string, ClientCommand>>
