import { NOTICING_HEARTBEAT_MS, STANDS_MS, StandStill } from '../../client/changes/stand-still.js'
import {
  type ChangedKey,
  type ChangedTxn,
  type Connection,
  KvError,
  type ServerStatus,
  type Timestamp,
} from '../../client/index.js'
import { printKey } from '../../errors/print-key.js'
import { LOCK_WAIT_MS_DEFAULT } from '../../limits.js'
import { integer, UsageError } from '../../server/flags.js'
import { BASE64_FLAG, nameArgument, RANGE_FLAGS, rangeOf } from './arguments.js'
import { clientCommand, noteOfWait } from './client-command.js'
import type { Screen } from './screen.js'
import { shown } from './shown.js'
import type { Table } from './table.js'

type Holder = ServerStatus['feed']['heldBackBy'][number]
type Txn = ChangedTxn<'bytes', boolean, boolean>
type Changed = ChangedKey<'bytes', boolean, boolean>

export const changes = clientCommand({
  flags: {
    ...RANGE_FLAGS,
    since: {
      value: 'TS',
      help: 'everything that was committed after it, 0: since the beginning; default: from now on',
      variable: false,
    },
    snapshot: { help: 'first the pairs that exist', variable: false },
    consumer: { value: 'NAME', help: 'from the position of a consumer, in its range', variable: false },
    'keys-only': { help: 'no values', variable: false },
    'old-values': { help: 'with the version before each change', variable: false },
    resolved: { help: 'also up to where everything has been printed', variable: false },
    once: {
      help: 'ends when it has caught up with its beginning, or has been held back by a lock for 3 s',
      variable: false,
    },
    ...BASE64_FLAG,
  },
  about: `Prints what is committed in a range, transaction by transaction in the order of their commits, each once, until Ctrl-C. A server
that goes away is waited for. A lock that holds the feed back is named after 2 s, where it is known.`,
  example: `$ perkv changes --prefix fruit/
{"type":"txn","commit_ts":3677245337305090,"start_ts":3677245337305089,"changes":[{"key":"fruit/kiwi","op":"put","value":"green"}]}`,
  isEndless: true,

  async run({ db, flags, screen, signal, note }) {
    const range = rangeOf(flags)
    const since = flags.optional('since')
    const sinceTs = since && integer(since, 0, Number.MAX_SAFE_INTEGER)
    const snapshot = flags.isSet('snapshot')
    const consumer = nameArgument('consumer', flags.optional('consumer')?.text)
    if (snapshot && sinceTs !== undefined) throw new UsageError('--snapshot does not go with --since')
    const hasRange = Object.values(range).some((bound) => bound !== undefined)
    if (consumer !== undefined && hasRange) throw new UsageError('--consumer has its own range: give no other')
    const caughtUp = new AbortController()
    const stop = (): void => caughtUp.abort()
    signal.addEventListener('abort', stop, { once: true })
    const untilTs = flags.isSet('once') ? (await db.snapshot()).ts : undefined
    const still = new StandStill()
    let noted: Holder | undefined
    const table = screen.table(['commit_ts', 'op', 'key', 'value'], { isLive: true })
    const options = {
      ...(consumer === undefined ? range : { consumer }),
      sinceTs,
      snapshot,
      keysOnly: flags.isSet('keys-only'),
      oldValues: flags.isSet('old-values'),
      as: 'bytes' as const,
      signal: caughtUp.signal,
      heartbeatMs: untilTs === undefined ? NOTICING_HEARTBEAT_MS : 100,
      onError: noteOfWait(note),
      onResolved: async (resolvedTs: number) => {
        if (flags.isSet('resolved') && screen.form === 'lines') await screen.line({ type: 'resolved', resolvedTs })
        const stoodMs = still.at(resolvedTs)
        if (untilTs !== undefined) {
          if (resolvedTs >= untilTs) caughtUp.abort()
          else if (stoodMs > LOCK_WAIT_MS_DEFAULT) {
            const holder = await holderOf(db)
            // On a shared store it may be the log of a server that was killed, which ends within 20 s.
            if (holder !== undefined) throw heldBack(holder, resolvedTs)
          }
        } else if (stoodMs >= STANDS_MS) {
          const holder = await holderOf(db).catch(() => undefined) // When the server is away, the stream reports it.
          if (holder === undefined || isSame(holder, noted)) return
          noted = holder
          note(heldText(holder, resolvedTs))
        }
      },
    }
    for await (const txn of db.changes<'bytes', boolean, boolean>(options)) {
      await print(txn, screen, table)
      still.moved()
    }
    signal.removeEventListener('abort', stop)
    return undefined
  },
})

async function holderOf(db: Connection): Promise<Holder | undefined> {
  return (await db.status()).feed.heldBackBy[0]
}

function isSame(a: Holder, b: Holder | undefined): boolean {
  return a.startTs === b?.startTs && printKey(a.key) === printKey(b.key)
}

function isShown(holder: Holder): boolean {
  return holder.key.length > 0
}

function heldText(holder: Holder, resolvedTs: Timestamp): string {
  const by = isShown(holder)
    ? `key ${printKey(holder.key)} is locked by the transaction at ${holder.startTs}, with ${holder.expiresInMs} ms left`
    : 'a transaction holds locks outside of the prefixes of this token'
  return `${by}; it holds back what was committed above ${resolvedTs}`
}

/** The error of a feed that locks hold back, with the position for another run. */
function heldBack(holder: Holder, resolvedTs: Timestamp): KvError {
  const detail = `${heldText(holder, resolvedTs)}: go on with --since ${resolvedTs}`
  return new KvError('key_locked', detail, isShown(holder) ? { key: holder.key, lock: holder } : {})
}

/** Prints the lines of `GET /v1/changes` as NDJSON. */
async function print(txn: Txn, screen: Screen, table: Table): Promise<void> {
  const { commitTs, startTs, part, isLast } = txn
  if (screen.form === 'table') {
    for (const change of txn.changes) await screen.write(table.add(rowOf(change)))
  } else if (txn.isSnapshot) {
    for (const { commitTs, ...change } of txn.changes) {
      if (change.op !== 'put') continue
      const { key, value, expireTs } = change
      await screen.line({ type: 'pair', key, value, commitTs, expireTs })
    }
    if (isLast) await screen.line({ type: 'snapshot_end', ts: commitTs })
  } else {
    const parts = part > 0 || !isLast ? { part, isLast } : {}
    await screen.line({ type: 'txn', commitTs, startTs, changes: txn.changes.map(wireOf), ...parts })
  }
}

function wireOf(change: Changed): object {
  const { commitTs: _same, ...rest } = change
  if (rest.op !== 'delete_range') {
    const { key, op, ...others } = rest
    return { key, op, ...others }
  }
  const { start, end, op } = rest
  return { key: start, op, end }
}

function rowOf(change: Changed): string[] {
  const { op, commitTs } = change
  if (op === 'delete_range') return [String(commitTs), op, shown(change.start), `up to ${shown(change.end)}`]
  const value = op === 'put' && change.value !== undefined ? shown(change.value) : ''
  const old = change.old === undefined ? '' : ` (before: ${change.old === null ? 'absent' : shown(change.old.value)})`
  return [String(commitTs), op, shown(change.key), `${value}${old}`]
}
