import { readFile } from 'node:fs/promises'
import { beforeAll, describe, expect, test } from 'vitest'
import { severalServers } from '../several-servers.js'
import { testServers } from '../support.js'
import { scrapeOf, scrapeOfText } from './scrape.js'

const start = testServers()
const startSeveral = severalServers()
const file = (name: string): Promise<string> =>
  readFile(new URL(`../../../docs/monitoring/${name}`, import.meta.url), 'utf8')

/** Labels that Prometheus or a histogram adds. */
const ADDED = ['instance', 'job', 'le']

interface Panel {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
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
    const scrape = await scrapeOf(await start())
    const [shared] = (await startSeveral(1)).servers
    const ofTable = scrapeOfText((await shared?.send('GET', '/metrics'))?.body ?? '')
    const types = new Map([...scrape.types, ...ofTable.types])
    const series = new Set([...scrape.series, ...ofTable.series])
    const labels = new Map([...ofTable.labels, ...scrape.labels])
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

  test('the dashboard begins with what an operator asks first, and its panels neither overlap nor share an id', async () => {
    const { panels } = JSON.parse(await file('grafana.json')) as { panels: readonly Panel[] }
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
    const taken = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, i) => `${x + (i % w)},${y + Math.floor(i / w)}`),
    )
    expect(new Set(taken).size).toBe(taken.length)
    const first = panels.filter(({ gridPos: { y } }) => y === 1).map(({ title }) => title)
    expect(first).toEqual(['Up', 'Writable', 'Version', 'Disk free', 'Commits per second'])
    const rows = panels.filter(({ type }) => type === 'row').map(({ title }) => title)
    expect(rows).toEqual(expect.arrayContaining(['Leases and pins', 'Shared store']))
  })

  test('each alert says why it matters and how to go on', () => {
    const rules = (used.get('alerts.yml') ?? '').split('- alert: ').slice(1)
    expect(rules.length).toBeGreaterThan(15)
    for (const rule of rules)
      for (const part of ['expr', 'severity', 'summary', 'reason', 'action'])
        expect(rule, rule).toMatch(new RegExp(`^ +${part}: \\S`, 'm'))
  })
})
