import { execFile } from 'node:child_process'
import { mkdtemp, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { rolldown } from 'rolldown'
import { expect, test } from 'vitest'

test('where the package is missing, one line says how to install it', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'perkv-missing-'))
  try {
    const input = fileURLToPath(new URL('../../src/store/table/bigtable/google-client.ts', import.meta.url))
    const bundle = await rolldown({ input, platform: 'node' })
    await bundle.write({ dir: directory, entryFileNames: 'google-client.mjs' })
    await bundle.close()
    const script = `
      const { openTable } = await import('./google-client.mjs')
      await openTable({ project: 'p', instance: 'i', table: 't' }).catch(({ name, message }) => console.log(name, message))`
    const run = () => promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], { cwd: directory })
    expect((await run()).stdout).toBe(
      "BigtableMissing Google's client of Bigtable is not installed: npm install --save-prod @google-cloud/bigtable@6.5.1\n",
    )
    // The same file finds a package that is there: it was not put into the bundle.
    await symlink(fileURLToPath(new URL('../../node_modules', import.meta.url)), join(directory, 'node_modules'))
    expect((await run()).stdout).toBe('')
  } finally {
    await rm(directory, { recursive: true })
  }
})
