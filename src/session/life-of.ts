interface Cookie {
  readonly expires?: unknown
  readonly maxAge?: unknown
  readonly originalMaxAge?: unknown
}

export function cookieOf(session: object): Cookie {
  const cookie: unknown = 'cookie' in session ? session.cookie : undefined
  return typeof cookie === 'object' && cookie !== null ? cookie : {}
}

/** @returns the milliseconds until the cookie of a session ends; undefined when it ends with the browser. */
export function lifeOf(session: object): number | undefined {
  const { expires, maxAge, originalMaxAge } = cookieOf(session)
  if (expires instanceof Date || typeof expires === 'string' || typeof expires === 'number')
    return new Date(expires).getTime() - Date.now()
  const age = maxAge ?? originalMaxAge
  return typeof age === 'number' ? age : undefined
}
