import { readFile } from 'node:fs/promises'
import { beforeAll, describe, expect, test } from 'vitest'
import { testServers } from '../support.js'
import { scrapeOf } from './scrape.js'

const start = testServers()
const file = (name: string): Promise<string> =>
  readFile(new URL(`../../../docs/monitoring/${name}`, import.meta.url), 'utf8')

/** Labels that Prometheus or a histogram adds. */
const ADDED = ['instance', 'job', 'le']

/** Expressions of the dashboard: of its panels, annotations and variables. */
function expressionsIn(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, inner]) =>
    (name === 'expr' || name === 'query') && typeof inner === 'string' ? [inner] : expressionsIn(inner),
  )
}

describe('what docs/monitoring names', () => {
  let used: Map<string, string>
  beforeAll(async () => {
    used = new Map([
      ['alerts.yml', await file('alerts.yml')],
      ['alerts.test.yml', await file('alerts.test.yml')],
      ['grafana.json', expressionsIn(JSON.parse(await file('grafana.json'))).join('\n')],
    ])
  })

  test('is in a real scrape: metrics and their labels', async () => {
    const { types, series, labels } = await scrapeOf(await start())
    for (const [name, text] of used) {
      const metrics = new Set(text.match(/\b(?:perkv|process|nodejs)_\w+/g))
      expect(metrics.size, name).toBeGreaterThan(3)
      // Texts for people name a histogram as a whole; expressions have to name a part of it.
      const named = name === 'alerts.yml' ? new Set([...series, ...types.keys()]) : series
      for (const metric of metrics) expect(named, `${name}: ${metric}`).toContain(metric)
      const expressions = name === 'alerts.yml' ? (text.match(/^ +expr: .*$/gm) ?? []).join('\n') : text
      for (const metric of expressions.match(/\b(?:perkv|process|nodejs)_\w+/g) ?? [])
        expect(series, `${name}: ${metric}`).toContain(metric)
      for (const [, metric = '', given = ''] of text.matchAll(/\b(perkv_\w+)\{([^}]*)\}/g)) {
        const family = types.has(metric) ? metric : metric.replace(/_(bucket|sum|count)$/, '')
        const allowed = [...ADDED, ...(labels.get(family) ?? [])]
        for (const [, label] of given.matchAll(/(\w+)=~?"/g)) expect(allowed, `${name}: ${metric}`).toContain(label)
      }
    }
    expect([...labels].filter(([, own]) => own.length > 0).length).toBeGreaterThan(8)
  })

  test('each alert says why it matters and how to go on', () => {
    const rules = (used.get('alerts.yml') ?? '').split('- alert: ').slice(1)
    expect(rules.length).toBeGreaterThan(15)
    for (const rule of rules)
      for (const part of ['expr', 'severity', 'summary', 'reason', 'action'])
        expect(rule, rule).toMatch(new RegExp(`^ +${part}: \\S`, 'm'))
  })
})
