import { vi } from 'vitest'

/**
 * What a test awaits comes late on a busy machine, and vitest gives it a second. Of `expect.poll` the configuration says more;
 * `vi.waitFor` and `vi.waitUntil` have no such setting. A test that fails does so later.
 */
const PATIENT = { timeout: 30_000, interval: 10 }

const { waitFor, waitUntil } = vi
// Files that share a process come here one after the other.
if (waitFor.name !== 'patiently') {
  vi.waitFor = function patiently(callback, options) {
    return waitFor(callback, typeof options === 'number' ? options : { ...PATIENT, ...options })
  }
  vi.waitUntil = (callback, options) =>
    waitUntil(callback, typeof options === 'number' ? options : { ...PATIENT, ...options })
}
