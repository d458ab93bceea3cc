import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { Document } from '../../bench/harness/document.mjs'
import { makeDirectory } from '../../bench/harness/process.mjs'
import { markdownOf, merged, row } from '../../bench/harness/report.mjs'

test('rows of one thing are one line, with the goals that it has', () => {
  const rows = [
    row('PUT, 10000 PUT/s, p50', 1.234, { unit: 'ms', goal: 5, isAtMost: true }),
    row('PUT, 10000 PUT/s, longest', 31, { unit: 'ms' }),
    row('claims', 2000, { unit: 'per second', goal: 4000, spread: [1000, 3000] }),
  ]
  expect(markdownOf([rows])).toBe(
    [
      '| measured              | value                | goal    | reached |',
      '| --------------------- | -------------------- | ------- | ------- |',
      '| PUT, 10,000 PUT/s, ms | p50 1.23, longest 31 | p50 ≤ 5 | yes     |',
      '| claims, per second    | 2,000 (1,000–3,000)  | ≥ 4,000 | no      |',
    ].join('\n'),
  )
})

test('tables with the same columns are one, where the last of them stands', () => {
  expect(merged([[{ a: 1 }], 'between', [{ a: 2 }], [{ b: 1 }]])).toEqual(['between', [{ a: 1 }, { a: 2 }], [{ b: 1 }]])
})

test('a document keeps all but the parts that are written', () => {
  const file = join(makeDirectory(), 'document.md')
  const text = (part: string) =>
    `# Title\n\n<!-- Written by \`npm run bench -- one --markdown\`: -->\n${part}\n<!-- Until here. -->\n\nThe end.\n`
  writeFileSync(file, text(''))
  expect(() => new Document(file, ['other'])).toThrow('has no marks')
  const document = new Document(file, ['one'])
  document.replace('other', 'nothing')
  document.replace('one', 'first')
  document.replace('one', 'second')
  expect(readFileSync(file, 'utf8')).toBe(text('\nsecond\n'))
})
