import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Clock } from '../../src/oracle/clock.js'
import { Oracle } from '../../src/oracle/oracle.js'
import { LOGICAL_PER_MS, physicalMs, type Timestamp, timestampFromMs } from '../../src/timestamp.js'

const START_MS = 1_700_000_000_000

/** What survives a restart, and the clock of the machine. */
class Machine {
  ms = START_MS
  mark: Timestamp = 0
  saves: Timestamp[] = []
  /** Stands in for a save; `land` puts the mark on disk. */
  onSave: (land: () => void) => Promise<void> = async (land) => land()

  start(): Oracle {
    return new Oracle({
      savedMark: this.mark,
      save: (mark) => {
        this.saves.push(mark)
        return this.onSave(() => {
          this.mark = mark
        })
      },
      clock: new Clock({ now: () => this.ms, savedMs: physicalMs(this.mark) }),
    })
  }
}

describe('next', () => {
  test('10 000 timestamps within one millisecond increase strictly and run ahead of the clock', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    let last = await oracle.next()
    expect(last).toBe(timestampFromMs(START_MS))
    for (let i = 1; i < 10_000; i++) {
      const ts = await oracle.next()
      expect(ts).toBe(last + 1)
      last = ts
    }
    expect(last).toBeGreaterThan(timestampFromMs(START_MS + 1))
    expect(last).toBeLessThan(machine.mark)
  })

  test('most timestamps come at once, without a promise', async () => {
    const oracle = new Machine().start()
    await oracle.next()
    expect(typeof oracle.next()).toBe('number')
  })

  test('a clock that steps on takes the timestamps along', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    await oracle.next()
    machine.ms += 60_000
    expect(await oracle.next()).toBe(timestampFromMs(START_MS + 60_000))
  })

  test('a clock that steps back does not', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    const before = await oracle.next()
    machine.ms -= 3_600_000
    expect(await oracle.next()).toBe(before + 1)
  })

  test('count hands out that many consecutive ones and answers the last', async () => {
    const oracle = new Machine().start()
    const first = await oracle.next()
    expect(await oracle.next(1000)).toBe(first + 1000)
    expect(await oracle.next()).toBe(first + 1001)
  })

  test('a count larger than what one mark covers', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    const count = 20_000_000
    const last = await oracle.next(count)
    expect(last).toBe(timestampFromMs(START_MS) - 1 + count)
    expect(last).toBeLessThan(machine.mark)
  })

  test('callers that wait for one save get different timestamps, each below the mark', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    const all = await Promise.all(
      [5, 1, 7_000_000, 1, 3].map(async (count) => ({ count, last: await oracle.next(count) })),
    )
    all.sort((a, b) => a.last - b.last)
    for (const [i, { count, last }] of all.entries()) {
      expect(last - count).toBeGreaterThanOrEqual(all[i - 1]?.last ?? 0)
      expect(last).toBeLessThan(machine.mark)
    }
  })
})

describe('the saved mark', () => {
  test('is on disk before the first timestamp below it goes out', async () => {
    const machine = new Machine()
    let land = (): void => {}
    machine.onSave = (landing) =>
      new Promise((resolve) => {
        land = () => {
          landing()
          resolve()
        }
      })
    const oracle = machine.start()
    let handedOut: Timestamp | undefined
    const next = Promise.resolve(oracle.next()).then((ts) => {
      handedOut = ts
    })
    await new Promise((resolve) => setImmediate(resolve))
    expect(handedOut).toBeUndefined()
    land()
    await next
    expect(handedOut).toBeLessThan(machine.mark)
  })

  test('a restart goes on above everything handed out, whatever the clock says', async () => {
    const machine = new Machine()
    const handedOut = await machine.start().next(5000)
    machine.ms -= 86_400_000
    expect(await machine.start().next()).toBeGreaterThan(handedOut)
  })

  test('a save lost in a crash: its timestamps were never handed out', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    const handedOut = await oracle.next()
    const saved = machine.mark
    machine.onSave = () => new Promise(() => {}) // The crash comes before the write.
    machine.ms += 10_000
    let isHandedOut = false
    void Promise.resolve(oracle.next()).then(() => {
      isHandedOut = true
    })
    await new Promise((resolve) => setImmediate(resolve))
    expect(isHandedOut).toBe(false)
    expect(machine.mark).toBe(saved)

    machine.onSave = async (land) => land()
    machine.ms -= 10_000
    const after = await machine.start().next()
    expect(after).toBeGreaterThan(handedOut)
    expect(after).toBeGreaterThan(saved)
  })

  test('is raised in the background before it is needed', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    await oracle.next()
    for (let i = 0; i < 100; i++) {
      machine.ms += 100
      expect(typeof oracle.next()).toBe('number')
      await new Promise((resolve) => setImmediate(resolve))
    }
  })

  test('a failing save rejects and hands out nothing; the next caller saves again', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    const handedOut = await oracle.next()
    machine.ms += 10_000
    machine.onSave = async () => {
      throw new Error('disk full')
    }
    await expect(Promise.all([oracle.next(), oracle.next(10)])).rejects.toThrow('disk full')
    await expect(oracle.next()).rejects.toThrow('disk full')
    expect(oracle.last).toBe(handedOut)
    machine.onSave = async (land) => land()
    expect(await oracle.next()).toBe(timestampFromMs(machine.ms))
  })

  test('a failing save in the background fails nobody', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    await oracle.next()
    machine.onSave = async () => {
      throw new Error('disk full')
    }
    machine.ms += 2000
    const saves = machine.saves.length
    expect(await oracle.next()).toBe(timestampFromMs(machine.ms))
    expect(machine.saves.length).toBe(saves + 1)
  })

  test('a failing save that landed all the same does no harm', async () => {
    const machine = new Machine()
    machine.onSave = async (land) => {
      land()
      throw new Error('disk full')
    }
    const oracle = machine.start()
    await expect(oracle.next()).rejects.toThrow('disk full')
    machine.onSave = async (land) => land()
    const handedOut = await oracle.next()
    expect(await machine.start().next()).toBeGreaterThan(handedOut)
  })
})

describe('observe', () => {
  test('the next timestamp counts, also where they run ahead of the clock', async () => {
    const machine = new Machine()
    machine.mark = timestampFromMs(START_MS + 1000)
    const oracle = machine.start()
    const calculated = ((await oracle.next()) as number) + 1
    await oracle.observe(calculated)
    expect(await oracle.next()).toBe(calculated + 1)
  })

  test('raises what is handed out next', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    const handedOut = await oracle.next()
    const seen = handedOut + 1000
    expect(oracle.observe(seen)).toBeUndefined()
    expect(oracle.last).toBe(seen)
    expect(await oracle.next()).toBe(seen + 1)
  })

  test('of an old timestamp changes nothing', async () => {
    const oracle = new Machine().start()
    const handedOut = await oracle.next(10)
    expect(oracle.observe(handedOut - 5)).toBeUndefined()
    expect(oracle.observe(1)).toBeUndefined()
    expect(oracle.last).toBe(handedOut)
  })

  test('of the future goes up to the clock and no further', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    await oracle.next()
    await oracle.observe(timestampFromMs(START_MS + 3_600_000))
    expect(oracle.last).toBe(timestampFromMs(START_MS) + LOGICAL_PER_MS - 1)
    await oracle.observe(Number.MAX_SAFE_INTEGER)
    expect(oracle.last).toBe(timestampFromMs(START_MS) + LOGICAL_PER_MS - 1)
    expect(await oracle.next()).toBe(timestampFromMs(START_MS + 1))
  })

  test('saves the mark first where it has to', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    await oracle.next()
    machine.ms += 10_000
    const seen = timestampFromMs(machine.ms)
    const observed = oracle.observe(seen)
    expect(observed).toBeInstanceOf(Promise)
    expect(oracle.last).toBeLessThan(seen)
    await observed
    expect(oracle.last).toBe(seen)
    expect(machine.mark).toBeGreaterThan(seen)
    expect(await machine.start().next()).toBeGreaterThan(seen)
  })

  test('rejects with a failing save, and leaves everything as it was', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    const handedOut = await oracle.next()
    machine.ms += 10_000
    machine.onSave = async () => {
      throw new Error('disk full')
    }
    await expect(oracle.observe(timestampFromMs(machine.ms))).rejects.toThrow('disk full')
    expect(oracle.last).toBe(handedOut)
  })

  test('clock() is the newest timestamp that is not in the future', async () => {
    const machine = new Machine()
    const oracle = machine.start()
    expect(oracle.clock()).toBe(timestampFromMs(START_MS) + LOGICAL_PER_MS - 1)
    const handedOut = await oracle.next(LOGICAL_PER_MS * 5)
    expect(oracle.clock()).toBe(handedOut)
  })
})

describe('property', () => {
  const step = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        type: fc.constant('next' as const),
        counts: fc.array(fc.integer({ min: 1, max: 5000 }), { minLength: 1, maxLength: 4 }),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        type: fc.constant('observe' as const),
        offset: fc.integer({ min: -10_000_000, max: 20_000_000 }),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({ type: fc.constant('clock' as const), ms: fc.integer({ min: -20_000, max: 20_000 }) }),
    },
    {
      weight: 1,
      arbitrary: fc.record({
        type: fc.constant('saves' as const),
        mode: fc.constantFrom('land', 'fail', 'land and fail'),
      }),
    },
    { weight: 2, arbitrary: fc.record({ type: fc.constant('restart' as const) }) },
  )

  test('no timestamp is handed out twice or out of order, whatever happens', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const machine = new Machine()
        let oracle = machine.start()
        let highest = 0
        for (const action of steps) {
          if (action.type === 'next') {
            const answers = await Promise.allSettled(
              action.counts.map(async (count) => ({ count, last: await oracle.next(count) })),
            )
            const ranges = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []))
            for (const { count, last } of ranges.sort((a, b) => a.last - b.last)) {
              expect(last - count).toBeGreaterThanOrEqual(highest)
              expect(last).toBeLessThan(machine.mark)
              highest = last
            }
          } else if (action.type === 'observe') {
            const seen = Math.max(1, timestampFromMs(machine.ms) + action.offset)
            const before = oracle.last
            const allowed = seen === before + 1 ? seen : Math.min(seen, oracle.clock())
            const outcome = await Promise.resolve(oracle.observe(seen)).then(
              () => 'seen',
              () => 'failed',
            )
            expect(oracle.last).toBe(outcome === 'seen' ? Math.max(before, allowed) : before)
            expect(oracle.last).toBeLessThanOrEqual(Math.max(machine.mark, before))
            highest = Math.max(highest, oracle.last)
          } else if (action.type === 'clock') machine.ms += action.ms
          else if (action.type === 'restart') oracle = machine.start()
          else
            machine.onSave = async (land) => {
              if (action.mode !== 'fail') land()
              if (action.mode !== 'land') throw new Error('disk full')
            }
        }
      }),
      { numRuns: 300 },
    )
  })
})

describe('a slow disk', () => {
  /** Saves that take time of the machine, and timers that go by it. */
  class SlowMachine extends Machine {
    saveMs = 0
    readonly said: string[] = []
    readonly #due: { atMs: number; call: () => void }[] = []

    override start(): Oracle {
      return new Oracle({
        savedMark: this.mark,
        save: (mark) => {
          this.saves.push(mark)
          return new Promise((resolve) => {
            this.after(this.saveMs, () => {
              this.mark = mark
              resolve()
            })
          })
        },
        clock: new Clock({ now: () => this.ms, savedMs: physicalMs(this.mark) }),
        timer: (ms, call) => this.after(ms, call),
        onChange: (message) => this.said.push(message),
      })
    }

    after(ms: number, call: () => void): () => void {
      const timer = { atMs: this.ms + ms, call }
      this.#due.push(timer)
      return () => {
        const at = this.#due.indexOf(timer)
        if (at !== -1) this.#due.splice(at, 1)
      }
    }

    async pass(ms: number): Promise<void> {
      const endMs = this.ms + ms
      for (;;) {
        await new Promise((resolve) => setImmediate(resolve))
        const [next] = this.#due.sort((a, b) => a.atMs - b.atMs)
        if (next === undefined || next.atMs > endMs) break
        this.#due.shift()
        this.ms = next.atMs
        next.call()
      }
      this.ms = endMs
    }

    /** @returns milliseconds until the call ended. */
    async until(call: Timestamp | Promise<unknown>): Promise<number> {
      const beganMs = this.ms
      let endedMs: number | undefined
      const end = (): void => {
        endedMs ??= this.ms
      }
      Promise.resolve(call).then(end, end)
      for (let i = 0; i < 200 && endedMs === undefined; i++) await this.pass(1000)
      return (endedMs ?? Number.POSITIVE_INFINITY) - beganMs
    }
  }

  for (const saveMs of [1000, 2999, 3000, 4000, 10_000, 30_000])
    test(`whose saves take ${saveMs} ms makes nobody wait once that is known`, async () => {
      const machine = new SlowMachine()
      machine.saveMs = saveMs
      const oracle = machine.start()
      expect(await machine.until(oracle.next())).toBeLessThanOrEqual(2 * saveMs)
      let waits = 0
      for (let i = 0; i < 200; i++) {
        await machine.pass(250)
        const next = oracle.next()
        if (typeof next !== 'number' && i > 10) waits++
        await machine.until(next)
        expect(await next).toBeLessThan(machine.mark)
      }
      expect(waits).toBe(0)
    })

  test('that becomes slower and slower is waited for, and no longer', async () => {
    const machine = new SlowMachine()
    const oracle = machine.start()
    for (machine.saveMs = 10; machine.saveMs < 100_000; machine.saveMs *= 2) {
      await machine.pass(60_000)
      expect(await machine.until(oracle.next())).toBeLessThanOrEqual(2 * machine.saveMs)
    }
  })

  for (const behindMs of [30_000, 3_600_000])
    test(`under a wall clock that is ${behindMs} ms behind the last run`, async () => {
      const machine = new SlowMachine()
      machine.saveMs = 400
      machine.mark = timestampFromMs(machine.ms + behindMs)
      const oracle = machine.start()
      for (let i = 0; i < 50; i++) {
        expect(await machine.until(oracle.next())).toBeLessThanOrEqual(i < 2 ? 1000 : 0)
        await machine.pass(100)
      }
    })

  test('answers clients in time, says so once, and says once that it is over', async () => {
    const machine = new SlowMachine()
    machine.saveMs = 9000
    const oracle = machine.start()
    const refused = oracle.nextForClient(1).catch((error) => error.code)
    expect(await machine.until(refused)).toBe(3000)
    expect(await refused).toBe('overloaded')
    expect(oracle.state.late).toMatch(/^no timestamps: saving their mark takes the disk 3 s$/)
    expect(machine.said).toEqual([expect.stringMatching(/^no timestamps: .* more than 2 s/)])
    expect(await machine.until(oracle.nextForClient(1).catch(() => {}))).toBe(3000)
    await machine.pass(20_000)
    expect(oracle.state.late).toBeUndefined()
    expect(machine.said).toEqual([expect.anything(), 'timestamps are handed out again, after 18 s'])
    expect(await machine.until(oracle.nextForClient(1))).toBe(0)
  })

  test('that fails in the end is not late any more: the failure says why', async () => {
    const machine = new Machine()
    let fail = (_: Error): void => {}
    machine.onSave = () =>
      new Promise((_, reject) => {
        fail = reject
      })
    const oracle = machine.start()
    const failed = Promise.resolve(oracle.next()).catch((error) => error.message)
    fail(new Error('disk full'))
    expect(await failed).toBe('disk full')
    expect(oracle.state.late).toBeUndefined()
  })

  test('a start after a crash leaves the longer way ahead out of ages, as the usual one', () => {
    const savedMs = START_MS + 23_000
    const clock = new Clock({ now: () => START_MS, savedMs, savedExtraMs: 20_000 })
    expect(clock.now()).toBe(savedMs)
    expect(clock.ago(0)).toBe(savedMs)
    expect(clock.steadyMs()).toBe(START_MS)
  })
})
