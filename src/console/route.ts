import { useLayoutEffect, useState } from 'preact/hooks'
import { idOf, ofId, type WireBytes } from './wire-bytes.js'

const VIEWS = ['browse', 'key', 'step', 'locks', 'leases', 'live', 'observers', 'feed', 'diff'] as const
export type View = (typeof VIEWS)[number]

/** Timestamps in the address, so that a link leads to what is seen, and the back button to what was seen before. */
export interface Times {
  /** Of all reads of keys; undefined: now. */
  readonly at?: number | undefined
  /** Of what is compared. */
  readonly from?: number | undefined
  readonly to?: number | undefined
}

export interface Route extends Times {
  readonly view: View
  /** A prefix or a key. */
  readonly argument: WireBytes
}

/** @param times by default the past that is looked at now. */
export function addressOf(view: View, argument: WireBytes = '', times: Times = pastOf(view)): string {
  const id = idOf(argument)
  const { at, from, to } = times
  const query = Object.entries({ at, from, to }).flatMap(([name, ts]) => (ts === undefined ? [] : [`${name}=${ts}`]))
  return `#/${view}${id === '' ? '' : `/${id}`}${query.length === 0 ? '' : `?${query.join('&')}`}`
}

function pastOf(view: View): Times {
  return view === 'browse' || view === 'key' ? { at: parse(location.hash).at } : {}
}

function parse(hash: string): Route {
  const [, name = '', id = '', query] = /^#\/([a-z]*)\/?([^?]*)(?:\?(.*))?$/.exec(hash) ?? []
  const view = VIEWS.find((one) => one === name) ?? 'browse'
  const asked = new URLSearchParams(query)
  const tsOf = (time: keyof Times): number | undefined => {
    const ts = Number(asked.get(time))
    return Number.isSafeInteger(ts) && ts > 0 ? ts : undefined
  }
  return { view, argument: ofId(id) ?? '', at: tsOf('at'), from: tsOf('from'), to: tsOf('to') }
}

export function go(view: View, argument: WireBytes = ''): void {
  location.hash = addressOf(view, argument)
}

/**
 * Looks at the same keys at another time.
 * @param replaces the present address instead of adding one to the history.
 */
export function travel(at: number | undefined, replaces = false): void {
  const { view, argument } = parse(location.hash)
  const address = addressOf(view, argument, { at })
  if (replaces) location.replace(address)
  else location.hash = address
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parse(location.hash))
  // Before the first paint: an address that changes before it would be missed otherwise.
  useLayoutEffect(() => {
    const update = (): void => {
      // Others name a place in the page.
      if (/^(#\/|$)/.test(location.hash)) setRoute(parse(location.hash))
    }
    addEventListener('hashchange', update)
    return () => removeEventListener('hashchange', update)
  }, [])
  return route
}
