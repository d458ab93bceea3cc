import type { Scrape } from '../../http/metrics/scrape.js'
import { code, linked, wrapped } from './markdown.js'

/** PerKV's own metrics, as a scrape shows them. */
export function metrics({ types, helps, labels }: Scrape): string {
  const own = [...types].filter(([name]) => name.startsWith('perkv_'))
  const lines = own.map(([name, type]) => {
    const of = (labels.get(name) ?? []).map(code).join(', ')
    return `- ${code(name)} (${type}${of === '' ? '' : ` by ${of}`}): ${linked(helps.get(name) ?? '')}`
  })
  return wrapped(lines.join('\n'))
}
