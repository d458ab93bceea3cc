import { readFile } from 'node:fs/promises'
import { extname } from 'node:path'
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import type { FastifyInstance, FastifySchema } from 'fastify'
import { KvError } from '../../errors/kv-error.js'
import { once } from '../../event-loop/once.js'
import { answerMade, type MadeAnswer, madeAnswer } from '../wire/made-answer.js'

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
}

/** Next to the bundled program, or below the root when the sources run. */
const ROOTS = ['./', '../../../dist/']

export interface BuiltPage {
  readonly url: string
  /** As a failure names it. */
  readonly name: string
  /** Of `dist/`, where `npm run build` puts `index.html` and the scripts and styles that the page names. */
  readonly folder: string
  readonly files: readonly string[]
  /** The sources that its styles may have. */
  readonly styles: string
  /** Of a page that the document describes. */
  readonly schema?: FastifySchema
}

/** Serves a page without data, so it needs no token. Its files are read at first use and kept. */
export function builtPage(app: FastifyInstance, page: BuiltPage): void {
  const { url, files, schema } = page
  const config = { access: 'open', work: 'watching' } as const
  const isOfPage = { ...config, isOfPage: true }
  const partOf = (file: string): (() => Promise<MadeAnswer>) => once(() => readPart(page, file))
  const index = partOf('index.html')
  app.get(url, schema ? { schema, config } : { config: isOfPage }, async (request, reply) =>
    answerMade(request, reply, await index()),
  )
  for (const file of files) {
    const part = partOf(file)
    app.get(`${url}/${file}`, { config: isOfPage }, async (request, reply) => answerMade(request, reply, await part()))
  }
}

/** @throws KvError `not_found` when the page was not built. */
async function readPart({ folder, name, styles }: BuiltPage, file: string): Promise<MadeAnswer> {
  for (const root of ROOTS) {
    const read = (path: string): Promise<Buffer | undefined> =>
      readFile(new URL(`${root}${folder}/${path}`, import.meta.url)).catch(() => undefined)
    const gzipped = await read(`${file}.gz`) // As the build leaves a large one.
    const bytes = gzipped === undefined ? await read(file) : await promisify(gunzip)(gzipped)
    if (bytes === undefined) continue
    const headers = {
      'content-type': TYPES[extname(file)] ?? 'application/octet-stream',
      // Replaces the policy of `SAFE_HEADERS`: the page's own scripts, and requests to this server only.
      'content-security-policy':
        `default-src 'none'; script-src 'self'; style-src ${styles}; connect-src 'self'; img-src data:; ` +
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    }
    return madeAnswer(bytes, headers, gzipped)
  }
  throw new KvError('not_found', `${name} was not built: run npm run build`, {})
}
