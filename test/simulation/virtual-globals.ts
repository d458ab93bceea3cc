import crypto from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import type { Random } from '../anomalies/random.js'
import { Owner, type ScheduledEvent, type Scheduler, turn } from './scheduler.js'

interface VirtualTimer {
  event: ScheduledEvent
  unref(): VirtualTimer
  ref(): VirtualTimer
  refresh(): VirtualTimer
}

/**
 * Puts clocks, timers and randomness of the scheduler in the place of Node's, for the code under test reads those: Date.now,
 * performance.now, setTimeout, setInterval, setImmediate, AbortSignal.timeout, Math.random, randomBytes and randomUUID. A timer belongs to the process whose
 * code sets it.
 *
 * All processes of a world share the queue for slices of long work (`time-slicer.ts`), and so do all worlds. A process that dies passes its
 * turn on: nothing that its code schedules after that is run.
 * @param wallMs Unix milliseconds of the simulated clock.
 * @param lateMs by so much the next timer comes too late.
 * @returns puts the real ones back.
 */
export function installVirtualGlobals(
  scheduler: Scheduler,
  random: Pick<Random, 'next' | 'below'>,
  wallMs: () => number,
  lateMs: () => number,
): () => Promise<void> {
  const turns = new Owner('turns')
  const turnsLeft = new Set<ScheduledEvent>()
  const passOn = (run: () => void): ScheduledEvent => {
    const { current } = scheduler
    const event = scheduler.schedule(turns, 0, 'next slice', () => {
      turnsLeft.delete(event)
      scheduler.become(current)
      run()
    })
    turnsLeft.add(event)
    return event
  }
  const later = (delayMs: number, label: string, run: () => void): VirtualTimer => {
    const timer: VirtualTimer = {
      event: scheduler.schedule(scheduler.current, delayMs, label, run),
      ref: () => timer,
      unref: () => timer,
      refresh: () => {
        scheduler.cancel(timer.event)
        timer.event = scheduler.schedule(timer.event.owner, delayMs, label, run)
        return timer
      },
    }
    return timer
  }
  const repeat = (delayMs: number, run: () => void): VirtualTimer => {
    const timer = later(delayMs, 'interval', function beat() {
      timer.event = scheduler.schedule(scheduler.current, delayMs, 'interval', beat)
      run()
    })
    return timer
  }
  const clear = (timer: VirtualTimer | undefined): void => {
    if (timer !== undefined) scheduler.cancel(timer.event)
  }
  const randomBytes = (size: number): Buffer => Buffer.from(Array.from({ length: size }, () => random.below(256)))
  // As Node's: at least a millisecond.
  const virtual = {
    setTimeout: (run: () => void, delayMs = 0) => later(Math.max(1, delayMs) + lateMs(), 'timer', run),
    setInterval: (run: () => void, delayMs = 0) => repeat(Math.max(1, delayMs), run),
    setImmediate: (run: () => void) => (run.name === 'passOn' ? passOn(run) : later(0, 'immediate', run)),
    clearTimeout: clear,
    clearInterval: clear,
    clearImmediate: clear,
  }
  const undo = [
    replace(globalThis, virtual),
    replace(performance, { now: () => scheduler.nowMs }),
    replace(Date, { now: wallMs }),
    replace(Math, { random: () => random.next() }),
    replace(AbortSignal, {
      timeout: (ms: number) => {
        const controller = new AbortController()
        later(ms, 'time is over', () => controller.abort(new DOMException('the time is over', 'TimeoutError')))
        return controller.signal
      },
    }),
    replace(crypto, { randomBytes, randomUUID: () => randomBytes(16).toString('hex') }),
  ]
  syncBuiltinESMExports()
  return async () => {
    for (const { run } of turnsLeft) {
      run?.()
      await turn()
    }
    for (const restore of undo) restore()
    syncBuiltinESMExports()
  }
}

function replace(target: object, replacements: Record<string, unknown>): () => void {
  const before = Object.keys(replacements).map((name) => [name, Object.getOwnPropertyDescriptor(target, name)] as const)
  for (const [name, value] of Object.entries(replacements))
    Object.defineProperty(target, name, { value, configurable: true, writable: true })
  return () => {
    for (const [name, descriptor] of before) {
      if (descriptor === undefined)
        Reflect.deleteProperty(target, name) // It was inherited.
      else Object.defineProperty(target, name, descriptor)
    }
  }
}
