import type { KeyRange } from '../bytes/key-range.js'
import type { Page, PageRequest, SortedMap } from '../bytes/sorted-map.js'
import { Slices } from '../event-loop/slices.js'
import { keyRangeOf } from '../percolator/given-range.js'
import type { StoredObserver } from './registration.js'
import type { ObserverState } from './rules/observers-api.js'

interface Shown {
  readonly stored: StoredObserver
  state(): Promise<ObserverState>
}

/** Only what is shown is counted. @param reaches whether the caller may see it. Default: all. */
export async function pageOfStates(
  observers: SortedMap<Shown>,
  request: PageRequest,
  reaches?: (range: KeyRange) => boolean,
): Promise<Page<ObserverState>> {
  const isShown = ({ stored }: Shown): boolean => reaches?.(keyRangeOf(stored.range)) !== false
  const { items, next } = await observers.page(request, isShown)
  const states: ObserverState[] = []
  const slices = new Slices(1) // Each state lists up to 256 workers.
  for (const observer of items) {
    await slices.next()
    if (observers.get(observer.stored.name) === observer) states.push(await observer.state())
  }
  return { items: states, next }
}
