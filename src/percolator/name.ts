import { invalid } from '../errors/kv-error.js'

/** Names of observers, consumers and webhooks. `rule` completes the sentence "a name must ...". */
export const NAME = {
  pattern: '^[A-Za-z0-9._-]{1,128}$',
  rule: 'be 1 to 128 letters, digits, dots, underscores and hyphens',
} as const

const PATTERN = new RegExp(NAME.pattern)

export function isName(name: string): boolean {
  return PATTERN.test(name)
}

export function requireName(of: 'observer' | 'consumer' | 'webhook', name: string): void {
  if (!isName(name)) throw invalid('name', `the name of ${of === 'observer' ? 'an' : 'a'} ${of} must ${NAME.rule}`)
}
