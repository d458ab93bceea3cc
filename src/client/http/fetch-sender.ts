import type { Sender } from './sender.js'

export type Fetch = (url: string, init: RequestInit) => Promise<Response>

/** @param url without a slash at its end. */
export function fetchSender(url: string, fetch: Fetch): Sender {
  const always = { cache: 'no-store', redirect: 'manual' } as const // Browsers would cache reads.
  return {
    send: (path, request) => fetch(`${url}${path}`, { ...request, ...always }),
    close() {}, // The platform closes the connections of fetch.
  }
}
