// Worker processes of a measurement.
import { once } from 'node:events'
import { startWorker, stop } from '../process.mjs'

/** Runs `use` with a worker of the server: `call(work, ...args)`, and its process. */
export async function withWorker(url, use) {
  const worker = startWorker('bench/observers/worker.mjs', [url])
  const died = once(worker.child, 'exit').then(() => {
    throw new Error('a worker ended')
  })
  died.catch(() => {}) // Also when it is stopped.
  const call = async (work, ...args) => {
    worker.child.send([work, ...args])
    const [result] = await Promise.race([once(worker.child, 'message'), died])
    return result
  }
  try {
    return await use(Object.assign(call, { process: worker }))
  } finally {
    await stop(worker)
  }
}
