import type { ClientCommand } from '../client/client-command.js'
import { count } from '../client/count.js'
import { del } from '../client/del.js'
import { get } from '../client/get.js'
import { put } from '../client/put.js'
import { scan } from '../client/scan.js'
import { status } from '../client/status.js'
import { txn } from '../client/txn.js'
import { explainError } from './explain-error.js'
import { explainLocks } from './explain-locks.js'
import { history } from './history.js'

/** A command that a model may call. Its arguments are the operands and the flags of the command. */
export interface Tool {
  readonly command: ClientCommand
  /** Where the command's own text speaks of a terminal. */
  readonly about?: string
  /** Schemas of the operands. An object is what the command reads from stdin. */
  readonly operands?: Readonly<Record<string, { readonly type: 'string' | 'object'; readonly description: string }>>
  /** Flags that a model may not give. */
  readonly without?: readonly string[]
  /** Flags that a call does not give. */
  readonly defaults?: Readonly<Record<string, string>>
  /** Absent: it reads. */
  readonly writes?: 'once' | 'at every call'
}

const KEY = { key: { type: 'string', description: 'the key' } } as const

export const READ_TOOLS: Readonly<Record<string, Tool>> = {
  scan: {
    command: scan,
    about: `Reads the pairs of a range in the order of their keys, all of one snapshot. For the next ones, give the last key as start, and
the end of the range.`,
    defaults: { limit: '50' },
  },
  get: { command: get, about: 'Reads the value of a key, the latest or that of a moment.', operands: KEY },
  history: { command: history, operands: KEY, defaults: { limit: '20' } },
  count: { command: count, about: 'Counts the keys of a range.' },
  explain_locks: { command: explainLocks, defaults: { limit: '20' } },
  explain_error: {
    command: explainError,
    operands: { problem: { type: 'object', description: 'the JSON body of the answer, which has a "code"' } },
  },
  status: {
    command: status,
    about: 'Reads the state of the server: version, store, capabilities, safe point, counts.',
  },
}

export const WRITE_TOOLS: Readonly<Record<string, Tool>> = {
  put: {
    command: put,
    about: 'Writes a key, over the value that it may have. A condition that does not hold is precondition_failed.',
    operands: { ...KEY, value: { type: 'string', description: 'the value' } },
    writes: 'once',
  },
  delete: {
    command: del,
    about: 'Deletes a key. Deleting an absent key succeeds.',
    operands: KEY,
    without: ['prefix', 'yes'],
    writes: 'once',
  },
  transaction: {
    command: txn,
    about: `Runs a transaction in one step, all or nothing, as POST /v1/txn of the HTTP API: {"checks": [...], "ops": [...]}. Nothing is
written unless all checks hold: {"key": "seat/1", "value": "free"}, {"key": "a", "exists": false}, {"key": "a", "commit_ts": 5}. Ops run
in order: {"op": "put", "key": "a", "value": "1"}, {"op": "get", "key": "a"}, {"op": "increment", "key": "n", "by": 1}, {"op": "scan",
"prefix": "a/", "limit": 10}; also insert, delete, touch, min, max and delete_range. Bytes that are not UTF-8 are {"base64": "..."}.`,
    operands: { body: { type: 'object', description: 'checks and ops' } },
    writes: 'at every call',
  },
}
