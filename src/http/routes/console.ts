import { readFile } from 'node:fs/promises'
import type { FastifyInstance } from 'fastify'
import { KvError } from '../../errors/kv-error.js'
import { once } from '../../event-loop/once.js'
import { answerMade, type MadeAnswer, madeAnswer } from '../wire/made-answer.js'

/** The files of the page, which `npm run build` makes from `src/console/`. */
const TYPES = {
  'index.html': 'text/html; charset=utf-8',
  'app.js': 'text/javascript; charset=utf-8',
  'style.css': 'text/css; charset=utf-8',
} as const
type Name = keyof typeof TYPES

/** Next to the bundled program, or below the root when the sources run. */
const FOLDERS = ['./console/', '../../../dist/console/']

/** Replaces the policy of `SAFE_HEADERS`: the page's own script and style, and requests to this server only. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/**
 * `/console`, `/console/app.js`, `/console/style.css`: a page without data, so it needs no token. Its files are read at first
 * use and kept.
 */
export function consoleRoutes(app: FastifyInstance): void {
  const config = { access: 'open', work: 'watching', isOfPage: true } as const
  const serve = (url: string, name: Name): void => {
    const part = once(() => readPart(name))
    app.get(url, { config }, async (request, reply) => answerMade(request, reply, await part()))
  }
  serve('/console', 'index.html')
  serve('/console/app.js', 'app.js')
  serve('/console/style.css', 'style.css')
}

/** @throws KvError `not_found` when the page was not built. */
async function readPart(name: Name): Promise<MadeAnswer> {
  for (const folder of FOLDERS) {
    const bytes = await readFile(new URL(folder + name, import.meta.url)).catch(() => undefined)
    if (bytes === undefined) continue
    const headers = { 'content-type': TYPES[name], 'content-security-policy': POLICY }
    return madeAnswer(bytes, headers)
  }
  throw new KvError('not_found', 'the console was not built: run npm run build', {})
}
