import { relative } from 'node:path'
import { beforeEach, type TestContext } from 'vitest'
import { reasonToSkip } from './not-on-bigtable.mjs'

/** Skips the tests that need what the store on Bigtable lacks. */
beforeEach(({ task, skip }: TestContext) => {
  const titles = [task.name]
  for (let { suite } = task; suite !== undefined; suite = suite.suite) titles.unshift(suite.name)
  const reason = reasonToSkip(relative(process.cwd(), task.file.filepath), titles.join(' > '))
  if (reason !== undefined) skip(`not on Bigtable: ${reason}`)
})
