/** In a program that `startWorker` starts: answers its calls. @param works functions by name. */
export function answerCalls(works) {
  process.on('message', async ({ id, work, args }) => {
    try {
      process.send({ id, result: await works[work](...args) })
    } catch (error) {
      process.send({ id, error: error.stack })
    }
  })
  process.on('disconnect', () => process.exit())
  process.on('SIGTERM', () => process.exit())
}
