/**
 * `npm run pack:client`: the client alone as `perkv-client-VERSION.tgz`, without dependencies. One module with msgpackr in it runs on every
 * platform, so `exports` needs no conditions; the types are those of the build. The adapters are modules of their own, which import
 * the first; that of abstract-level imports abstract-level, which its user has. Arguments go to `npm pack`.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'

const root = fileURLToPath(new URL('../../../', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'perkv-client-'))

const ADAPTERS = ['keyv', 'level', 'rate-limit', 'session']

/** Leaves imports of the client's module to that of the package. */
const clientOutside = {
  name: 'client-outside',
  resolveId: (id) => (id.endsWith('/client/index.js') ? { id: '../index.js', external: true } : null),
}

async function bundle(input, file) {
  const made = await rolldown({
    cwd: root, // Its comments name modules relative to this.
    input,
    plugins: [clientOutside],
    // msgpackr's plain JavaScript: the other entries load Node's streams, and a native module.
    resolve: { conditionNames: ['browser', 'import', 'default'] },
    platform: 'neutral',
    external: (id) => id === 'abstract-level',
    onLog(_level, { message }) {
      throw new Error(message)
    },
  })
  await made.write({ file: join(folder, file), format: 'es', comments: false, charset: 'ascii' })
}

try {
  await bundle('src/client/index.ts', 'index.js')
  cpSync(join(root, 'dist/client/index.d.ts'), join(folder, 'index.d.ts'))
  for (const adapter of ADAPTERS) {
    await bundle(`src/${adapter}/index.ts`, `${adapter}/index.js`)
    const types = readFileSync(join(root, `dist/${adapter}/index.d.ts`), 'utf8')
    writeFileSync(join(folder, `${adapter}/index.d.ts`), types.replace("'../client/index.js'", "'../index.js'"))
  }
  const { name, ...rest } = JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8'))
  const {
    version,
    dependencies,
    peerDependencies: peers,
  } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const adapted = Object.keys(rest.peerDependenciesMeta)
  const peerDependencies = Object.fromEntries(adapted.map((peer) => [peer, dependencies[peer] ?? peers[peer]]))
  writeFileSync(
    join(folder, 'package.json'),
    `${JSON.stringify({ name, version, ...rest, peerDependencies }, null, 2)}\n`,
  )
  cpSync(fileURLToPath(new URL('README.md', import.meta.url)), join(folder, 'README.md'))
  cpSync(join(root, 'LICENSE'), join(folder, 'LICENSE'))
  cpSync(join(root, 'node_modules/msgpackr/LICENSE'), join(folder, 'LICENSE-msgpackr'))
  const destination = ['--pack-destination', process.cwd()]
  execFileSync('npm', ['pack', folder, ...destination, ...process.argv.slice(2)], { stdio: 'inherit' })
} finally {
  rmSync(folder, { recursive: true })
}
