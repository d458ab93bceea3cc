import { EventEmitter } from 'node:events'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { expect, test } from 'vitest'
import { OpenWatches } from '../../../src/http/admission/open-watches.js'

function opened(ended: () => void) {
  const raw = new EventEmitter()
  const request = { ip: '::1', raw: {} } as unknown as FastifyRequest
  const watch = new OpenWatches().open(request, { raw } as unknown as FastifyReply, { ended })
  return { watch, signal: watch.signal, close: () => raw.emit('close') }
}

test('a request that still waits when its connection closes is aborted', () => {
  let ends = 0
  const { watch, signal, close } = opened(() => ends++)
  close()
  expect([signal.aborted, watch.isEnded, ends]).toEqual([true, true, 1])
})

test('one that has ended is not: the close follows its answer', () => {
  let ends = 0
  const { watch, signal, close } = opened(() => ends++)
  watch.end()
  close()
  expect([signal.aborted, ends]).toEqual([false, 0])
})
