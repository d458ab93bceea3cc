import type { CellPage } from '../store/marked-cells.js'
import { pagesOf } from './cell-pages.js'

const PAGE = 512

/**
 * Picks one of the keys on the first pages, each with the same probability; undefined: there are none.
 * @see The paper, section 2.4: workers begin their scans at random places.
 */
export async function randomPlace(
  read: (page: CellPage) => Promise<readonly { readonly key: Uint8Array }[]>,
  { pages, random, isOver }: { readonly pages: number; readonly random: () => number; readonly isOver?: () => boolean },
): Promise<Uint8Array | undefined> {
  let place: Uint8Array | undefined
  let seen = 0
  let left = pages
  for await (const page of pagesOf(read, PAGE)) {
    for (const { key } of page) if (random() * ++seen < 1) place = key
    if (--left === 0 || isOver?.()) break
  }
  return place
}
