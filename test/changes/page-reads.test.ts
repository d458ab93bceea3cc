import { expect, test } from 'vitest'
import { PageReads } from '../../src/changes/page-reads.js'
import { AnswerBudget } from '../../src/store/answer-budget.js'

const MIB = 1024 * 1024
const never = (): boolean => false

test('few pages are read at once, and every stream gets its own', async () => {
  const reads = new PageReads(new AnswerBudget({ answerBytesMax: MIB, answersBytesMax: MIB }))
  let [reading, most] = [0, 0]
  async function* source(name: number): AsyncGenerator<number, void> {
    for (let page = 0; page < 3; page++) {
      most = Math.max(most, ++reading)
      await new Promise(setImmediate)
      reading--
      yield name
    }
  }
  const taken = await Promise.all(
    Array.from({ length: 100 }, async (_, name) => {
      const pages: number[] = []
      for await (const page of reads.pages(source(name), { pageBytes: () => 1, isOver: never })) pages.push(page)
      return pages
    }),
  )
  expect(taken).toEqual(Array.from({ length: 100 }, (_, name) => [name, name, name]))
  expect(most).toBe(16)
})

test('a page counts until the stream is asked for more, and streams wait while half of the room is taken', async () => {
  const answers = new AnswerBudget({ answerBytesMax: MIB, answersBytesMax: 2 * MIB })
  const reads = new PageReads(answers)
  let read = 0
  let isOver = false
  async function* source(): AsyncGenerator<number, void> {
    for (;;) yield ++read
  }
  const first = reads.pages(source(), { pageBytes: () => MIB, isOver: never })
  await first.next()
  expect(answers.heldBytes).toBe(MIB)
  const second = reads.pages(source(), { pageBytes: () => MIB, isOver: () => isOver })
  const waiting = second.next()
  await new Promise((resolve) => setTimeout(resolve, 0))
  expect(read).toBe(1)
  await first.return()
  expect(answers.heldBytes).toBe(0)
  expect(await waiting).toEqual({ value: 2, done: false })
  expect(answers.heldBytes).toBe(MIB)
  isOver = true
  expect(await second.next()).toEqual({ value: undefined, done: true })
  expect(answers.heldBytes).toBe(0)
})

test('of many streams few are within a transaction, and none of them waits for room', { tags: ['long'] }, async () => {
  const answers = new AnswerBudget({ answerBytesMax: MIB, answersBytesMax: 40 * MIB })
  const reads = new PageReads(answers)
  const PAGES = 3
  async function* source(): AsyncGenerator<number, void> {
    for (let page = 0; page < PAGES; page++) {
      await new Promise(setImmediate)
      yield page
    }
  }
  let [held, most, ended] = [0, 0, 0]
  const streams = Array.from({ length: 200 }, async () => {
    let kept = 0
    const reading = { pageBytes: () => MIB, keptBytes: () => kept, isOver: never }
    for await (const page of reads.pages(source(), reading)) {
      kept += MIB
      held += MIB
      most = Math.max(most, held)
      expect(answers.heldBytes).toBeGreaterThanOrEqual(kept)
      if (page < PAGES - 1) continue
      await new Promise(setImmediate) // The client takes the transaction.
      held -= kept
      kept = 0
      ended++
    }
  })
  await Promise.all(streams)
  expect([ended, answers.heldBytes]).toEqual([200, 0])
  expect(most / MIB).toBeLessThanOrEqual(20 + 2 * 16 * PAGES)
})
