import { availableParallelism, loadavg } from 'node:os'
import type { Reporter, TestModule } from 'vitest/node'

const BUDGET_MS = 1000
/** No noise of a quiet machine explains a test that takes this long. */
const FAILS_MS = 3000

/**
 * Everyday runs stay short: it names the tests that take over a second on a quiet machine, and fails the run for very long
 * ones. They get the tag `long`, and run where CI is set.
 */
export default class SlowTests implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const [load = 0] = loadavg()
    if (load > availableParallelism() + 2) return // The workers of this run are one more than the processors.
    const slow = modules
      .flatMap((module) => [...module.children.allTests()])
      .map((test) => ({
        name: `${test.module.relativeModuleId} > ${test.fullName}`,
        ms: test.diagnostic()?.duration ?? 0,
      }))
      .filter(({ ms }) => ms > BUDGET_MS)
      .sort((one, other) => other.ms - one.ms)
    for (const { name, ms } of slow) console.warn(`${Math.round(ms)} ms: ${name}`)
    if (slow.length > 0) console.warn('Tests over a second get the tag `long`, and run where CI is set.')
    if (slow.some(({ ms }) => ms > FAILS_MS)) process.exitCode = 1
  }
}
