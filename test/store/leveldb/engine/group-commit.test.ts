import { describe, expect, test } from 'vitest'
import type { Engine, EngineOp } from '../../../../src/store/leveldb/engine/engine.js'
import { GroupCommit } from '../../../../src/store/leveldb/engine/group-commit.js'
import { type Deferred, deferred, turn, utf8, watch } from '../../support.js'

const opOf = (name: string): EngineOp => ({ type: 'put', key: utf8(name), value: utf8('') })
const namesOf = (ops: readonly EngineOp[]): string[] => ops.map(({ key }) => key.toString())

/** Records writes; each waits until the test settles it. */
function recordingEngine(log: string[] = []) {
  const writes: { names: string[]; sync: boolean; done: Deferred }[] = []
  const unused = (): never => {
    throw new Error('not part of a group commit')
  }
  const engine: Engine = {
    write(ops, sync) {
      const done = deferred()
      writes.push({ names: namesOf(ops), sync, done })
      log.push(`write ${namesOf(ops).join(' ')}`)
      return done.promise
    },
    get: unused,
    getSync: unused,
    getMany: unused,
    iterator: unused,
    snapshot: unused,
    compactRange: unused,
    approximateSize: unused,
    requireRoom: unused,
    reopen: unused,
    close: unused,
  }
  return { engine, writes }
}

const noRecovery = async (): Promise<void> => {
  throw new Error('nothing to recover from')
}

describe('grouping', () => {
  test('batches ready in one turn share one write, in the order they came', async () => {
    const { engine, writes } = recordingEngine()
    const group = new GroupCommit(engine, true, noRecovery)
    const all = ['a', 'b', 'c'].map((name) => group.submit([opOf(name), opOf(`${name}2`)]))
    await turn()
    expect(writes.map(({ names }) => names)).toEqual([['a', 'a2', 'b', 'b2', 'c', 'c2']])
    writes[0]?.done.resolve()
    await Promise.all(all)
  })

  test('batches that come during a write wait for it, and share the next', async () => {
    const { engine, writes } = recordingEngine()
    const group = new GroupCommit(engine, true, noRecovery)
    const first = watch(group.submit([opOf('first')]))
    await turn()
    const second = watch(group.submit([opOf('second')]))
    const third = watch(group.submit([opOf('third')]))
    await turn()
    expect(writes.map(({ names }) => names)).toEqual([['first']])
    expect(first.isSettled()).toBe(false)
    writes[0]?.done.resolve()
    await turn()
    expect(first.isSettled()).toBe(true)
    expect(second.isSettled()).toBe(false)
    expect(writes.map(({ names }) => names)).toEqual([['first'], ['second', 'third']])
    writes[1]?.done.resolve()
    await Promise.all([second.promise, third.promise])
  })

  test('a batch after an idle time is written as well', async () => {
    const { engine, writes } = recordingEngine()
    const group = new GroupCommit(engine, true, noRecovery)
    for (const name of ['one', 'two', 'three']) {
      const submitted = group.submit([opOf(name)])
      await turn()
      writes.at(-1)?.done.resolve()
      await submitted
    }
    expect(writes.map(({ names }) => names)).toEqual([['one'], ['two'], ['three']])
  })

  test.each([true, false])('every write carries the sync flag: %s', async (sync) => {
    const { engine, writes } = recordingEngine()
    const group = new GroupCommit(engine, sync, noRecovery)
    void group.submit([opOf('a')])
    await turn()
    writes[0]?.done.resolve()
    void group.submit([opOf('b')])
    void group.submit([opOf('c')])
    await turn()
    expect(writes.map((write) => write.sync)).toEqual([sync, sync])
  })
})

describe('failures', () => {
  test('reject the group and those waiting behind it, after the recovery; what comes later is written', async () => {
    const log: string[] = []
    const { engine, writes } = recordingEngine(log)
    const recovered = deferred()
    const group = new GroupCommit(engine, true, () => {
      log.push('recover')
      return recovered.promise
    })
    const submit = (name: string): Promise<void> =>
      group.submit([opOf(name)]).then(
        () => void log.push(`${name} written`),
        (error: unknown) => void log.push(`${name}: ${error instanceof Error ? error.message : error}`),
      )
    const failing = [submit('a'), submit('b')]
    await turn()
    failing.push(submit('waiting'))
    writes[0]?.done.reject(new Error('disk full'))
    await turn()
    expect(log).toEqual(['write a b', 'recover'])
    const later = submit('later') // During the recovery: it was decided on what the recovery reads.
    await turn()
    expect(log).toEqual(['write a b', 'recover'])
    recovered.resolve()
    await Promise.all(failing)
    await turn()
    expect(log.slice(2)).toContain('write later')
    expect(log.slice(2).filter((line) => line.includes('disk full'))).toEqual([
      'a: disk full',
      'b: disk full',
      'waiting: the storage engine failed before this was written: disk full',
    ])
    writes[1]?.done.resolve()
    await later
    expect(log.at(-1)).toBe('later written')
  })

  test('a write that fails after a failure is recovered from again', async () => {
    const { engine, writes } = recordingEngine()
    let recoveries = 0
    const group = new GroupCommit(engine, true, async () => void recoveries++)
    for (let i = 0; i < 3; i++) {
      const submitted = group.submit([opOf('a')])
      await turn()
      writes.at(-1)?.done.reject(new Error(`failure ${i}`))
      await expect(submitted).rejects.toThrow(`failure ${i}`)
    }
    expect(recoveries).toBe(3)
  })
})

describe('enqueue', () => {
  test('calls back in the order of the batches, and then its group is over', async () => {
    const { engine, writes } = recordingEngine()
    const group = new GroupCommit(engine, true, noRecovery)
    const log: string[] = []
    void group.nextIsOver.then(() => log.push('over'))
    for (const name of ['a', 'b']) group.enqueue([opOf(name)], (error) => void log.push(`${name} ${error}`))
    await turn()
    group.enqueue([opOf('later')], (error) => void log.push(`later ${error}`))
    expect(log).toEqual([])
    writes[0]?.done.resolve()
    await turn()
    expect(log).toEqual(['a undefined', 'b undefined', 'over'])
    expect(group.queue).toMatchObject({ batches: 1 })
    writes[1]?.done.resolve()
    await turn()
    expect(log.at(-1)).toBe('later undefined')
    expect(group.queue).toEqual({ batches: 0, bytes: 0 })
  })

  test('a failure ends both groups', async () => {
    const { engine, writes } = recordingEngine()
    const group = new GroupCommit(engine, true, async () => {})
    const log: string[] = []
    group.enqueue([opOf('a')], (error) => void log.push(`a ${error}`))
    void group.nextIsOver.then(() => log.push('over'))
    await turn()
    group.enqueue([opOf('behind')], (error) => void log.push(`behind ${error}`))
    void group.nextIsOver.then(() => log.push('over behind'))
    writes[0]?.done.reject(new Error('disk full'))
    await turn()
    expect(log.map((line) => line.split(':')[0])).toEqual(['a Error', 'behind KvError', 'over', 'over behind'])
  })
})

test('a caller that throws leaves the others of its group and later groups their answers', async () => {
  const { engine, writes } = recordingEngine()
  const group = new GroupCommit(engine, true, noRecovery)
  const thrown = new Promise<unknown>((resolve) => {
    const { listeners } = { listeners: process.listeners('uncaughtException') }
    process.removeAllListeners('uncaughtException')
    process.once('uncaughtException', (error) => {
      for (const listener of listeners) process.on('uncaughtException', listener)
      resolve(error)
    })
  })
  const fault = new Error('a defect of the caller')
  group.enqueue([opOf('a')], () => {
    throw fault
  })
  const second = group.submit([opOf('b')])
  const over = group.nextIsOver
  await turn()
  writes[0]?.done.resolve()
  expect(await thrown).toBe(fault)
  await Promise.all([second, over])
  const later = group.submit([opOf('c')])
  await turn()
  writes[1]?.done.resolve()
  await later
})

describe('idle', () => {
  test('at once when nothing is under way', async () => {
    await new GroupCommit(recordingEngine().engine, true, noRecovery).idle()
  })

  test('after everything submitted, what came during a write included', async () => {
    const { engine, writes } = recordingEngine()
    const group = new GroupCommit(engine, true, noRecovery)
    void group.submit([opOf('a')])
    await turn()
    void group.submit([opOf('b')])
    const idle = watch(group.idle())
    writes[0]?.done.resolve()
    await turn()
    expect(idle.isSettled()).toBe(false)
    writes[1]?.done.resolve()
    await idle.promise
    expect(writes).toHaveLength(2)
  })

  test('after a failure and its recovery', async () => {
    const { engine, writes } = recordingEngine()
    const recovered = deferred()
    const group = new GroupCommit(engine, true, () => recovered.promise)
    const submitted = group.submit([opOf('a')])
    await turn()
    writes[0]?.done.reject(new Error('disk full'))
    const idle = watch(group.idle())
    await turn()
    expect(idle.isSettled()).toBe(false)
    recovered.resolve()
    await expect(submitted).rejects.toThrow('disk full')
    await idle.promise
  })
})
