import type { Registry } from '../cluster/registry.js'
import type { Member } from '../http/routes/context.js'
import type { Limits } from '../limits.js'
import type { Logger } from '../logger.js'
import { AnswerBudget } from '../store/answer-budget.js'
import { makeDirectory, unmakeDirectory } from '../store/leveldb/directory/make-directory.js'
import { type OpenedDatabase, openLevelDbStore } from '../store/leveldb/leveldb-store.js'
import type { Store } from '../store/store.js'
import { keyBytesMaxOf, VALUE_BYTES_MAX } from '../store/table/layout/row-keys.js'
import { UnusableTable } from '../store/table/layout/unusable-table.js'
import type { Config } from './config.js'
import type { SharedTable } from './shared-table.js'

export interface OpenedStore {
  readonly store: Store
  /** The limits of the configuration, as far as the store allows. */
  readonly limits: Limits
  /** Where the data is, for people. */
  readonly place: string
  readonly member?: Member | undefined
  /** Absent: this process has the store to itself. */
  readonly registry?: Registry | undefined
  /** Fulfilled when the server must not go on. The message is one line. Absent: that is never so. */
  readonly failed?: Promise<Error> | undefined
  /** To be called when the server listens. Absent: no other server asks this one. */
  listens?(): void
  /** Logs the result of the start. */
  logStart(): void
  /** Removes the files of a failed start. */
  undo(): Promise<void>
}

/**
 * @param url where other servers reach this one, if several share the store.
 * @throws DataDirectoryError; UnusableTable.
 */
export function openStore(config: Config, url: string, log: Logger): Promise<OpenedStore> {
  return typeof config.store === 'string' ? openDirectory(config, log) : openTable(config, config.store, url, log)
}

async function openDirectory(config: Config, log: Logger): Promise<OpenedStore> {
  const { data, durability, cacheBytesMax, tuning, limits } = config
  const made = await makeDirectory(data)
  const undo = (): Promise<void> => unmakeDirectory(data, made)
  let opened: OpenedDatabase | undefined
  try {
    const store = await openLevelDbStore({
      directory: data,
      durability,
      cacheBytesMax,
      tuning,
      onOpen: (found) => {
        opened = found
      },
      onConvert: (from, to) =>
        log.info(`${data} has format ${from} and is converted to ${to}, which older versions of PerKV cannot open`),
      onEnd: (message) => log.fatal(`${message}; all requests are refused from now on`),
      onClockStep: (message) => log.warn(message),
      onTimestamps: (message) => log.warn(message),
      onWritable: (message, isWritable) => (isWritable ? log.info(message) : log.error(message)),
      answers: new AnswerBudget(limits),
      locksMax: limits.locksMax,
    })
    const logStart = (): void => {
      if (opened !== undefined) logOpened(log, data, opened)
    }
    return { store, limits, place: data, logStart, undo }
  } catch (error) {
    await undo()
    throw error
  }
}

function logOpened(log: Logger, directory: string, opened: OpenedDatabase): void {
  const { isNew, replayedBytes, durationMs, locks } = opened
  const how = isNew ? 'made a new database in' : 'opened the database in'
  const replayed = replayedBytes === 0 ? '' : `, ${Math.ceil(replayedBytes / 1024)} KiB of log replayed`
  log.info(
    { directory, ...opened },
    `${how} ${directory} in ${durationMs} ms${isNew ? '' : `${replayed}, ${locks} locks stand`}`,
  )
}

async function openTable(config: Config, table: SharedTable, url: string, log: Logger): Promise<OpenedStore> {
  const { place } = table
  const { limits: asked } = config
  const limits = {
    ...asked,
    keyBytesMax: Math.min(asked.keyBytesMax, keyBytesMaxOf(table.engine)),
    valueBytesMax: Math.min(asked.valueBytesMax, VALUE_BYTES_MAX),
  }
  let onEnd = (_: string): void => {}
  const failed = new Promise<Error>((resolve) => {
    onEnd = (message) => resolve(new UnusableTable(message))
  })
  const { store, member } = await table.open({
    url,
    answers: new AnswerBudget(limits),
    onRole: (message) => log.info(message),
    onTimestamps: (message) => log.warn(message),
    onEnd,
    onClockStep: (message) => log.warn(message),
    onWarning: (message) => log.warn(message),
  })
  const logStart = (): void =>
    log.info({ server: member.id }, `serves ${place}; other servers reach this one at ${url}`)
  const { registry, listens } = member
  return { store, limits, place, member, registry, failed, listens, logStart, undo: async () => {} }
}
