import type { Scrape } from '../../http/metrics/scrape.js'
import { code, linked, table } from './markdown.js'

/** PerKV's own metrics, as a scrape shows them. */
export function metrics({ types, helps, labels }: Scrape): string {
  const own = [...types].filter(([name]) => name.startsWith('perkv_'))
  const rows = own.map(([name, type]) => [
    code(name),
    type,
    (labels.get(name) ?? []).map(code).join(', '),
    linked(helps.get(name) ?? ''),
  ])
  return table(['metric', 'type', 'labels', ''], rows)
}
