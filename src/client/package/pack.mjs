/**
 * `npm run pack:client`: the client alone as `perkv-client-VERSION.tgz`, without dependencies. One module with msgpackr in it runs on every
 * platform, so `exports` needs no conditions; the types are those of the build, as far as `index.d.ts` reaches. Arguments go to `npm pack`.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'

const root = fileURLToPath(new URL('../../../', import.meta.url))
const built = join(root, 'dist')
const folder = mkdtempSync(join(tmpdir(), 'perkv-client-'))

async function bundle() {
  const made = await rolldown({
    cwd: root, // Its comments name modules relative to this.
    input: 'src/client/index.ts',
    // msgpackr's plain JavaScript: the other entries load Node's streams, and a native module.
    resolve: { conditionNames: ['browser', 'import', 'default'] },
    platform: 'neutral',
    external: () => false,
    onLog(_level, { message }) {
      throw new Error(message)
    },
  })
  await made.write({ file: join(folder, 'index.js'), format: 'es', comments: false, charset: 'ascii' })
}

/** Copies a declaration file with all that it imports. */
function copyTypes(file, seen = new Set()) {
  if (seen.has(file)) return
  seen.add(file)
  const copy = join(folder, 'types', relative(built, file))
  mkdirSync(dirname(copy), { recursive: true })
  cpSync(file, copy)
  for (const [, imported] of readFileSync(file, 'utf8').matchAll(/\b(?:from |import\()'([^']+)'/g)) {
    if (!imported.startsWith('.')) throw new Error(`${file} needs the types of ${imported}`)
    copyTypes(join(dirname(file), imported.replace(/\.js$/, '.d.ts')), seen)
  }
}

try {
  await bundle()
  copyTypes(join(built, 'client/index.d.ts'))
  const { name, ...rest } = JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8'))
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify({ name, version, ...rest }, null, 2)}\n`)
  cpSync(fileURLToPath(new URL('README.md', import.meta.url)), join(folder, 'README.md'))
  cpSync(join(root, 'LICENSE'), join(folder, 'LICENSE'))
  cpSync(join(root, 'node_modules/msgpackr/LICENSE'), join(folder, 'LICENSE-msgpackr'))
  const destination = ['--pack-destination', process.cwd()]
  execFileSync('npm', ['pack', folder, ...destination, ...process.argv.slice(2)], { stdio: 'inherit' })
} finally {
  rmSync(folder, { recursive: true })
}
