import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'

const { resolve } = createRequire(import.meta.url)
const textOf = (path) => readFile(path, 'utf8')
const here = (name) => new URL(name, import.meta.url)

/** The page beside its script: HTML as it is, and one sheet of the chart's style and its own. */
const page = {
  name: 'page',
  async generateBundle() {
    const styles = await Promise.all([resolve('uplot/dist/uPlot.min.css'), here('style.css')].map(textOf))
    this.emitFile({ type: 'asset', fileName: 'style.css', source: styles.join('\n') })
    this.emitFile({ type: 'asset', fileName: 'index.html', source: await textOf(here('index.html')) })
  },
}

export default {
  input: { app: new URL('main.tsx', import.meta.url).pathname },
  platform: 'browser',
  plugins: [page],
  output: { dir: 'dist/console', entryFileNames: '[name].js', minify: true, comments: false },
}
