import fc from 'fast-check'
import { expect, test } from 'vitest'
import { linesOf } from '../../src/commands/lines.js'

async function* chunks(parts: readonly string[]): AsyncGenerator<Uint8Array> {
  for (const part of parts) yield Buffer.from(part)
}

test('a byte order mark at the beginning is no part of the first line, wherever it is cut', async () => {
  const bytes = Buffer.from('\ufeffa\n\ufeffb\n')
  for (let at = 0; at < bytes.length; at++) {
    const lines: string[] = []
    const source = (async function* () {
      yield* [bytes.subarray(0, at), bytes.subarray(at)]
    })()
    for await (const line of linesOf(source)) lines.push(line.toString())
    expect(lines).toEqual(['a', '\ufeffb'])
  }
})

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
