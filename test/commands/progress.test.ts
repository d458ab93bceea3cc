import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { Progress } from '../../src/commands/progress.js'

const { stderr } = process
const wasTty = stderr.isTTY
let written = ''

beforeEach(() => {
  written = ''
  stderr.isTTY = true
  vi.useFakeTimers()
  vi.spyOn(stderr, 'write').mockImplementation((text) => {
    written += text
    return true
  })
})
afterEach(() => {
  stderr.isTTY = wasTty
  vi.useRealTimers()
  vi.restoreAllMocks()
})

/** What the line on the terminal says after the next tick. */
async function shown(progress: Progress): Promise<string | undefined> {
  await vi.advanceTimersByTimeAsync(200)
  progress.stop()
  return /\d+ %/.exec(written)?.[0]
}

describe('a progress in percent', () => {
  test('of bytes', async () => {
    const progress = new Progress('restore', 'key', { isQuiet: false, totalBytes: 400 })
    progress.bytes = 100
    expect(await shown(progress)).toBe('25 %')
  })

  test('of items, with those of an earlier run', async () => {
    const progress = new Progress('backup', 'key', { isQuiet: false })
    progress.expect(Promise.resolve(200), 50)
    progress.add(100, 1)
    expect(await shown(progress)).toBe('75 %')
  })

  test('of the time that an increment spans', async () => {
    const progress = new Progress('backup', 'change', { isQuiet: false })
    progress.share = 0.333
    expect(await shown(progress)).toBe('33 %')
  })

  test('is left out where the total is not known', async () => {
    for (const total of [async () => undefined, () => Promise.reject(new Error('no such route'))]) {
      const progress = new Progress('backup', 'key', { isQuiet: false })
      progress.expect(total(), 0)
      progress.add(100, 1)
      expect(await shown(progress)).toBeUndefined()
      expect(written).toContain('backup 100 keys')
    }
  })

  test('is at most 100, and that of nothing is 100', async () => {
    const over = new Progress('load', 'line', { isQuiet: false, totalBytes: 10 })
    over.bytes = 11
    expect(await shown(over)).toBe('100 %')
    written = ''
    const none = new Progress('backup', 'key', { isQuiet: false })
    none.expect(Promise.resolve(0), 0)
    expect(await shown(none)).toBe('100 %')
  })
})
