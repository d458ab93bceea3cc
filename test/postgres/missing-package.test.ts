import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { rolldown } from 'rolldown'
import { expect, test } from 'vitest'

test('where the package is missing, one line says how to install it', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'perkv-missing-'))
  try {
    const input = fileURLToPath(new URL('../../src/store/table/postgres/table-admin.ts', import.meta.url))
    const bundle = await rolldown({ input, platform: 'node' })
    await bundle.write({ dir: directory, entryFileNames: 'table-admin.mjs' })
    await bundle.close()
    const script = `
      const { makeTable } = await import('./table-admin.mjs')
      await makeTable({ connection: 'postgres://x', table: 't', place: 'x' })
        .catch(({ name, message }) => console.log(name, message))`
    const args = ['--input-type=module', '-e', script]
    expect((await promisify(execFile)(process.execPath, args, { cwd: directory })).stdout).toBe(
      'PostgresMissing the client of PostgreSQL is not installed: npm install --save-prod pg@8\n',
    )
  } finally {
    await rm(directory, { recursive: true })
  }
})
