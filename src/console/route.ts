import { useLayoutEffect, useState } from 'preact/hooks'
import { idOf, ofId, type WireBytes } from './wire-bytes.js'

const VIEWS = ['browse', 'key', 'step', 'locks', 'live', 'observers', 'feed'] as const
export type View = (typeof VIEWS)[number]

export interface Route {
  readonly view: View
  /** A prefix or a key. */
  readonly argument: WireBytes
}

export function addressOf(view: View, argument: WireBytes = ''): string {
  const id = idOf(argument)
  return id === '' ? `#/${view}` : `#/${view}/${id}`
}

function parse(hash: string): Route {
  const [, name = '', id = ''] = /^#\/([a-z]*)\/?(.*)$/.exec(hash) ?? []
  const view = VIEWS.find((one) => one === name) ?? 'browse'
  return { view, argument: ofId(id) ?? '' }
}

export function go(view: View, argument: WireBytes = ''): void {
  location.hash = addressOf(view, argument)
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parse(location.hash))
  // Before the first paint: an address that changes before it would be missed otherwise.
  useLayoutEffect(() => {
    const update = (): void => setRoute(parse(location.hash))
    addEventListener('hashchange', update)
    return () => removeEventListener('hashchange', update)
  }, [])
  return route
}
