import { vi } from 'vitest'

/**
 * What a test awaits comes late on a busy machine, and vitest gives it a second. Of `expect.poll` the configuration says more;
 * `vi.waitFor` has no such setting. A test that fails does so later.
 */
const TIMEOUT_MS = 30_000

const { waitFor } = vi
// Files that share a process come here one after the other.
if (waitFor.name !== 'patiently')
  vi.waitFor = function patiently(callback, options) {
    return waitFor(callback, typeof options === 'number' ? options : { timeout: TIMEOUT_MS, interval: 10, ...options })
  }
