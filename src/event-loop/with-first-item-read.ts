/**
 * Yields the same items, with the first one already read. A source that fails at once thus fails here, before the headers of the
 * answer are sent, and the failure can still be answered with a problem document.
 */
export async function withFirstItemRead<T>(items: AsyncGenerator<T, void>): Promise<AsyncGenerator<T, void>> {
  const first = await items.next()
  return resumed(first, items)
}

async function* resumed<T>(first: IteratorResult<T, void>, rest: AsyncGenerator<T, void>): AsyncGenerator<T, void> {
  if (first.done) return
  yield first.value
  yield* rest
}
