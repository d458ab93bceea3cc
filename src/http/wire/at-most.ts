import type { Limits } from '../../limits.js'

interface Keyword {
  (name: keyof Limits, given: unknown): boolean
  errors?: { keyword: string; message: string; params: { limit: number } }[]
}

/** The schema keyword `atMost` bounds an integer or the length of a list by the limit that it names. */
export function atMostKeyword(limits: Limits) {
  const validate: Keyword = (name, given) => {
    const limit = limits[name]
    if (Array.isArray(given) && given.length > limit)
      validate.errors = [{ keyword: 'maxItems', message: `must NOT have more than ${limit} items`, params: { limit } }]
    else if (typeof given === 'number' && given > limit)
      validate.errors = [{ keyword: 'maximum', message: `must be <= ${limit}`, params: { limit } }]
    else return true
    return false
  }
  return { keyword: 'atMost', schemaType: 'string', errors: true, validate } as const
}
