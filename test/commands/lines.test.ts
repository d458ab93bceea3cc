import fc from 'fast-check'
import { expect, test } from 'vitest'
import { linesOf } from '../../src/commands/lines.js'

async function* chunks(parts: readonly string[]): AsyncGenerator<Uint8Array> {
  for (const part of parts) yield Buffer.from(part)
}

test('the lines of a stream are those of its text, however it is cut', async () => {
  const part = fc.string({ unit: fc.constantFrom('a', 'ü', '\n', '\r', ' ') })
  await fc.assert(
    fc.asyncProperty(fc.array(part), async (parts) => {
      const wanted = parts.join('').split('\n')
      if (wanted.at(-1) === '') wanted.pop() // A newline ends a line, and begins none.
      const lines: string[] = []
      for await (const line of linesOf(chunks(parts))) lines.push(line.toString())
      expect(lines).toEqual(wanted)
    }),
  )
})
