import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { gzipSync } from 'node:zlib'
import viewer from '@scalar/fastify-api-reference'
import fastify from 'fastify'

const { resolve } = createRequire(import.meta.url)
const textOf = (path) => readFile(path, 'utf8')
const here = (name) => new URL(name, import.meta.url)

/** A page beside its script: HTML as it is, and one sheet of styles. */
const page = (html, sheets) => ({
  name: 'page',
  async generateBundle() {
    const styles = await Promise.all(sheets.map(textOf))
    this.emitFile({ type: 'asset', fileName: 'style.css', source: styles.join('\n') })
    this.emitFile({ type: 'asset', fileName: 'index.html', source: await textOf(here(html)) })
  },
})

/** Scalar's viewer as its plugin for Fastify serves it: that package needs a tenth of the packages of `@scalar/api-reference`. */
const scalar = {
  name: 'scalar',
  async generateBundle() {
    const app = fastify().register(viewer, { routePrefix: '/docs', configuration: { url: 'openapi.json' } })
    const { rawPayload } = await app.inject('/docs/js/scalar.js')
    this.emitFile({ type: 'asset', fileName: 'viewer.js.gz', source: gzipSync(rawPayload, { level: 9 }) })
  },
}

const bundle = (dir, input, plugins) => ({
  input,
  platform: 'browser',
  plugins,
  output: { dir: `dist/${dir}`, entryFileNames: '[name].js', minify: true, comments: false },
})

const sheets = [resolve('uplot/dist/uPlot.min.css'), here('palette.css'), here('style.css')]
const referenceSheets = [here('palette.css'), here('reference/style.css')]

export default [
  bundle('console', { app: here('main.tsx').pathname }, [page('index.html', sheets)]),
  bundle('reference', { page: here('reference/page.ts').pathname }, [
    page('reference/index.html', referenceSheets),
    scalar,
  ]),
]
