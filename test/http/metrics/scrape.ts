import { numberOf, type TestServer } from '../support.js'

export interface Scrape {
  readonly text: string
  /** Of each family. */
  readonly types: ReadonlyMap<string, string>
  readonly helps: ReadonlyMap<string, string>
  /** Names that expressions can use. */
  readonly series: ReadonlySet<string>
  /** Sorted, without `le`. Families without samples are absent. */
  readonly labels: ReadonlyMap<string, readonly string[]>
}

/** The metrics of a server that has had one of each kind: commits, conflicts, observers, a collection, a table. */
export async function scrapeOf(server: TestServer): Promise<Scrape> {
  await server.put('key', 'value')
  await server.get('/v1/kv/nobody')
  await server.get('/v1/kv?prefix=k', { accept: 'application/x-ndjson' })
  await server.send('PUT', '/v1/observers/mail', { 'content-type': 'application/json' }, '{"prefix":"mail/"}')
  await server.post('/v1/admin/gc', {})
  await server.post('/v1/admin/compact', {})
  const start_ts = numberOf(await server.ok('tso', {}), 'ts')
  await server.put('key', 'newer')
  await server.call('prewrite', { start_ts, primary: 'key', mutations: [{ op: 'put', key: 'key', value: 'late' }] })
  return scrapeOfText((await server.get('/metrics')).body)
}

export function scrapeOfText(text: string): Scrape {
  const types = new Map([...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name = '', type = '']) => [name, type]))
  const helps = new Map([...text.matchAll(/^# HELP (\w+) (.*)$/gm)].map(([, name = '', help = '']) => [name, help]))
  const series = new Set<string>()
  for (const [name, type] of types)
    for (const end of type === 'histogram' ? ['_bucket', '_sum', '_count'] : ['']) series.add(name + end)
  const labels = new Map<string, readonly string[]>()
  for (const [, name = '', given = ''] of text.matchAll(/^(\w+)(?:\{(.*)\})? \S+$/gm)) {
    const family = types.has(name) ? name : name.replace(/_(bucket|sum|count)$/, '')
    const own = [...given.matchAll(/(\w+)="/g)].map(([, label = '']) => label).filter((label) => label !== 'le')
    labels.set(family, own.sort())
  }
  return { text, types, helps, series, labels }
}
