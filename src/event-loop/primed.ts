/**
 * The same items, the first of them read already. A source that fails at once fails here, before the headers of an answer
 * are sent, so that it can be answered with a problem.
 */
export async function primed<T>(items: AsyncGenerator<T, void>): Promise<AsyncGenerator<T, void>> {
  const first = await items.next()
  return resumed(first, items)
}

async function* resumed<T>(first: IteratorResult<T, void>, rest: AsyncGenerator<T, void>): AsyncGenerator<T, void> {
  if (first.done) return
  yield first.value
  yield* rest
}
