import { expect, test } from 'vitest'
import { KvError } from '../../../src/errors/kv-error.js'
import { decodeOracleRecord } from '../../../src/oracle/oracle-row.js'
import { encodeWrite } from '../../../src/percolator/codec/write.js'
import { acceptLoss } from '../../../src/store/table/check/accept-loss.js'
import {
  FIRST_FORMAT,
  FORMAT_KEY,
  type FoundLoss,
  readFormat,
  requireFit,
  type Serving,
} from '../../../src/store/table/format/format-row.js'
import { noteLoss } from '../../../src/store/table/format/table-loss.js'
import { descending } from '../../../src/store/table/layout/layout.js'
import { recordAt } from '../../../src/store/table/layout/record-at.js'
import { timestampFromMs } from '../../../src/timestamp.js'
import { utf8 } from '../support.js'
import { type JoinedServer, JoinedServers } from './joined-servers.js'
import { MemoryTable } from './memory-table.js'
import { checked, ORACLE_ROW, PlantedRows } from './planted-rows.js'

const SERVING: Serving = { place: 't', newest: FIRST_FORMAT }
const WHY = 'commits are lost'
const LOSS = { why: WHY, isDoubt: false }

async function oracleOf(table: MemoryTable): Promise<{ mark: number; epoch: number }> {
  return decodeOracleRecord((await recordAt(table, ORACLE_ROW)) ?? Buffer.alloc(0))
}

const put = ({ database }: JoinedServer) =>
  database.transact({
    ...{ checks: [], maxRetries: 0, lockWaitMs: 0 },
    ops: [{ op: 'put', key: utf8('k'), value: utf8('v') }],
  })

test('a table with a loss is not served until it is accepted, and then with later timestamps', {
  tags: ['long'],
}, async () => {
  const table = new MemoryTable()
  const servers = new JoinedServers(table)
  const one = await servers.start('one', SERVING)
  await put(one)
  const mark = timestampFromMs(Date.now() + 3_600_000)
  await noteLoss(table, SERVING, { ...LOSS, mark, epoch: 7 })
  await noteLoss(table, SERVING, { ...LOSS, why: 'seen by another server', mark: mark - 5, epoch: 9 })
  expect((await readFormat(table))?.lost).toEqual({ ...LOSS, mark, epoch: 9 })
  const told = `t: ${WHY}: see what is missing, then run perkv store accept 't'`
  await expect.poll(() => one.ends).toEqual([told])
  await expect(put(one)).rejects.toThrow(told)
  await one.close()
  await expect(servers.start('two', SERVING)).rejects.toThrow(told)

  const rows = new PlantedRows(table, undefined)
  expect(await acceptLoss(table, rows, { serving: SERVING })).toEqual({ above: mark, why: WHY })
  expect(await oracleOf(table)).toMatchObject({ mark, epoch: 10 })
  // A server that had stood still finds the same loss late: it ends alone.
  await noteLoss(table, SERVING, { ...LOSS, mark: mark - 9, epoch: 7 })
  await requireFit(table, SERVING)
  const three = await servers.start('three', SERVING)
  await put(three)
  expect((await checked(rows)).table.newestTs).toBeGreaterThan(mark)
  await three.close()
})

test('a server that cannot tell ends alone: others that run go on, and none starts', { tags: ['long'] }, async () => {
  const table = new MemoryTable()
  const servers = new JoinedServers(table)
  let lose = (_: FoundLoss): void => {}
  const lost = new Promise<FoundLoss>((resolve) => {
    lose = resolve
  })
  const one = await servers.start('one', SERVING, 20, { lost })
  const two = await servers.start('two', SERVING)
  await put(one)
  lose({ why: 'nothing shows it', isDoubt: true })
  const told = "t: nothing shows it: see what is missing, then run perkv store accept 't'"
  await expect.poll(() => one.ends).toEqual([`${told}; this server ends`])
  await expect(put(one)).rejects.toThrow(told)
  await one.close()
  let looks = 0
  const { rows } = table
  table.rows = (request) => {
    if (request.keys?.some((key) => key.equals(FORMAT_KEY))) looks++
    return rows.call(table, request)
  }
  await expect.poll(() => looks).toBeGreaterThanOrEqual(2) // The first was answered before the second.
  await put(two)
  expect(two.ends).toEqual([])
  await expect(servers.start('three', SERVING)).rejects.toThrow(told)

  // What is known ends the others too, and a doubt that comes later changes nothing.
  const known = { mark: 1, epoch: 1 }
  await noteLoss(table, SERVING, { ...LOSS, ...known })
  await noteLoss(table, SERVING, { why: 'nothing shows it', isDoubt: true, ...known })
  expect((await readFormat(table))?.lost).toMatchObject(LOSS)
  await expect.poll(() => two.ends).toHaveLength(1)
  await two.close()
})

test('a server that finds a loss refuses everything before the table says so, and ends afterwards', async () => {
  const table = new MemoryTable()
  let lose = (_: FoundLoss): void => {}
  const lost = new Promise<FoundLoss>((resolve) => {
    lose = resolve
  })
  const one = await new JoinedServers(table).start('one', SERVING, 20, { lost })
  await put(one)
  const { change } = table
  let isNoting = false
  let failures = 1
  let note = (): void => {}
  const mayNote = new Promise<void>((resolve) => {
    note = resolve
  })
  table.change = async (...given) => {
    if (given[0].equals(FORMAT_KEY)) {
      // A database that has just failed over may refuse for a while.
      if (--failures >= 0) throw new KvError('storage_unavailable', 'a standby', {})
      isNoting = true
      await mayNote
    }
    return change.apply(table, given)
  }
  lose(LOSS)
  await expect.poll(() => isNoting).toBe(true)
  await expect(put(one)).rejects.toThrow(WHY)
  expect(one.ends).toEqual([])
  note()
  await expect.poll(() => one.ends).toHaveLength(1)
  expect((await readFormat(table))?.lost).toMatchObject(LOSS)
  await one.close()
})

test('accepted timestamps are above the clock and all records, but for what a client made up', async () => {
  const nowMs = Date.now()
  const accept = async (commitMs: number): Promise<number> => {
    const table = new MemoryTable()
    const rows = new PlantedRows(table, undefined)
    const commitTs = timestampFromMs(commitMs)
    const rest = { shortValue: utf8('v'), expireTs: 0, leaseFence: 0, isProtected: false, hasOverlappedRollback: false }
    const value = encodeWrite({ type: 'put', startTs: commitTs - 1, commitTs, ...rest })
    rows.plant('k', { family: 'w', qualifier: descending(commitTs), value })
    const { above } = await acceptLoss(table, rows, { serving: SERVING, now: () => nowMs })
    expect(await oracleOf(table)).toMatchObject({ mark: above, epoch: 1 })
    return above
  }
  const ofClock = await accept(nowMs - 1000)
  expect(ofClock).toBeGreaterThan(timestampFromMs(nowMs + 8000))
  expect(await accept(nowMs + 3_600_000)).toBe(timestampFromMs(nowMs + 3_600_000) + 1)
  expect(await accept(nowMs + 40_000_000_000)).toBe(ofClock)
})
