import { expect, test } from 'vitest'
import { consoleBlocks } from './console-blocks.js'

const block = (...lines: readonly string[]): string => ['```console', ...lines, '```', ''].join('\n')

test('commands, their further lines and what they show', () => {
  const document = `Text\n\n${block('$ curl a \\', "  -d '{", "  }'", '{}', 'more', '$ for x in 1; do', '  echo $x', 'done', '1')}`
  expect(consoleBlocks(document)).toEqual([
    {
      line: 3,
      markers: [],
      commands: [
        { line: 4, command: "curl a \\\n  -d '{\n  }'", shown: ['{}', 'more'], shownAt: 6 },
        { line: 9, command: 'for x in 1; do\n  echo $x\ndone', shown: ['1'], shownAt: 11 },
      ],
    },
  ])
})

test('markers belong to the block below them', () => {
  const document = `<!-- run: server --gc-life-time 0 -->\n<!-- run: $ echo 1\n  echo 2 -->\n${block('$ true')}<!-- run: not: it takes\n  days -->\n${block('$ false')}`
  expect(consoleBlocks(document).map(({ markers }) => markers)).toEqual([
    [
      { kind: 'server', flags: ['--gc-life-time', '0'] },
      { kind: 'hidden command', command: 'echo 1\n  echo 2' },
    ],
    [{ kind: 'not', reason: 'it takes days' }],
  ])
})

test.each([
  ['an exclusion without a reason', `<!-- run: not -->\n${block('$ true')}`],
  ['an unknown marker', `<!-- run: sever -->\n${block('$ true')}`],
  ['a marker above a program', '<!-- run: server -->\n```js\n1\n```\n'],
  ['a marker above nothing', '<!-- run: server -->\n'],
  ['output before the first command', block('{}', '$ true')],
])('refused: %s', (_, document) => expect(() => consoleBlocks(document)).toThrow())
