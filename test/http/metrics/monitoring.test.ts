import { readFile } from 'node:fs/promises'
import { beforeAll, describe, expect, test } from 'vitest'
import { testServers } from '../support.js'
import { scrapeOf } from './scrape.js'

const start = testServers()
const file = (name: string): Promise<string> =>
  readFile(new URL(`../../../docs/monitoring/${name}`, import.meta.url), 'utf8')

/** Labels that Prometheus or a histogram adds. */
const ADDED = ['instance', 'job', 'le']
const TABLE_ROW = /^\| `(perkv_\w+)` +\| (\w+) +\| ([^|]*)\|/gm

interface Explained {
  readonly type: string
  readonly labels: readonly string[]
}

async function explained(): Promise<Map<string, Explained>> {
  const rows = [...(await file('README.md')).matchAll(TABLE_ROW)]
  return new Map(
    rows.map(([, name = '', type = '', labels = '']) => [
      name,
      { type, labels: [...labels.matchAll(/`(\w+)`/g)].map(([, label = '']) => label) },
    ]),
  )
}

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
    const known = await explained()
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
        const allowed = [...ADDED, ...(known.get(family)?.labels ?? [])]
        for (const [, label] of given.matchAll(/(\w+)=~?"/g)) expect(allowed, `${name}: ${metric}`).toContain(label)
      }
    }
    expect([...labels].filter(([, own]) => own.length > 0).length).toBeGreaterThan(8)
  })

  test('each metric of the server is explained, with its type and labels, and no other', async () => {
    const { types, labels } = await scrapeOf(await start())
    const known = await explained()
    const own = [...types.keys()].filter((name) => name.startsWith('perkv_'))
    expect([...known.keys()].sort()).toEqual(own.sort())
    for (const [name, { type, labels: named }] of known) {
      expect(type, name).toBe(types.get(name))
      const found = labels.get(name)
      if (found !== undefined) expect([...named].sort(), name).toEqual(found)
    }
  })

  test('each alert says why it matters and how to go on', () => {
    const rules = (used.get('alerts.yml') ?? '').split('- alert: ').slice(1)
    expect(rules.length).toBeGreaterThan(15)
    for (const rule of rules)
      for (const part of ['expr', 'severity', 'summary', 'reason', 'action'])
        expect(rule, rule).toMatch(new RegExp(`^ +${part}: \\S`, 'm'))
  })
})
