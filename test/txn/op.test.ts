import { expect, test } from 'vitest'
import { type Op, type OpTarget, runOps } from '../../src/txn/op.js'
import { utf8 } from '../store/support.js'

const SCAN: Op = { op: 'scan', start: undefined, end: undefined, limit: 1, reverse: false, keyOnly: false }

/** A rejection that nobody waits for ends the server. */
test.each([1, 2])('given up before op %i begins, which fails: its failure is heard of', async (number) => {
  const abort = new AbortController()
  const locked = async (): Promise<never> => {
    throw new Error('locked')
  }
  const put = (): void => abort.abort(new Error('given up'))
  const txn: OpTarget = {
    get: locked,
    getToWrite: locked,
    put,
    putStamped: () => 0,
    insert: locked,
    delete: put,
    scan: locked,
  }
  if (number === 1) put()
  const ops: readonly Op[] = [{ op: 'put', key: utf8('a'), value: utf8('1') }, SCAN]
  await expect(runOps(txn, ops.slice(2 - number), 0, undefined, abort.signal)).rejects.toThrow('locked')
})
