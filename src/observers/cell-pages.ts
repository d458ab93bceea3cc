import type { CellPage } from '../store/marked-cells.js'

export async function* pagesOf<T extends { readonly key: Uint8Array }>(
  read: (page: CellPage) => Promise<readonly T[]>,
  limit: number,
): AsyncGenerator<readonly T[], void> {
  for (let after: Uint8Array | undefined; ; ) {
    const page = await read({ after, limit })
    yield page
    after = page.at(-1)?.key
    if (page.length < limit) return
  }
}
