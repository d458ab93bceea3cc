import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { scrapeOf } from '../http/metrics/scrape.js'
import { type TestServer, testServers } from '../http/support.js'
import type { Document } from './generated/document.js'
import { errors } from './generated/errors.js'
import { commandFlags, limits, serveFlags, serverFlags } from './generated/flags.js'
import { metrics } from './generated/metrics.js'
import { reference } from './generated/reference.js'

const start = testServers()

/** The parts of docs/ that are made from tables of the source. `npm run docs` writes them into the documents. */

const PARTS: Readonly<Record<string, (server: TestServer) => string | Promise<string>>> = {
  errors: async (server) => errors(await documentOf(server)),
  reference: async (server) => reference(await documentOf(server)),
  metrics: async (server) => metrics(await scrapeOf(server)),
  'flags of serve': serveFlags,
  limits,
  'flags of clients': serverFlags,
  'flags of commands': commandFlags,
}

const DOCUMENTS: Readonly<Record<string, readonly string[]>> = {
  'errors.md': ['errors'],
  'reference.md': ['reference'],
  'metrics.md': ['metrics'],
  'flags.md': ['flags of serve', 'limits', 'flags of clients', 'flags of commands'],
}

async function documentOf(server: TestServer): Promise<Document> {
  return (await server.get('/openapi.json')).json<Document>()
}

/** What stands between these lines is made. */
const PART = /(?<=^<!-- made: (.+?), by npm run docs -->\n\n).*?(?=\n\n<!-- made: end -->$)/gms

test.each(Object.entries(DOCUMENTS))('docs/%s is what npm run docs makes', { tags: ['long'] }, async (name, wanted) => {
  const path = fileURLToPath(new URL(`../../docs/${name}`, import.meta.url))
  const text = readFileSync(path, 'utf8')
  expect([...text.matchAll(PART)].map(([, part]) => part)).toEqual(wanted)
  const server = await start()
  const made = new Map(await Promise.all(wanted.map(async (part) => [part, await PARTS[part]?.(server)] as const)))
  const whole = text.replace(PART, (_, part: string) => made.get(part) ?? '')
  if (process.env['PERKV_DOCS_WRITE']) writeFileSync(path, whole)
  else expect(text).toBe(whole)
})
