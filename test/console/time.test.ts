import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { describe, expect, test } from 'vitest'
import { withTempDir } from '../process/server-process.js'
import { endBrowserAfterAll, get, hasBrowser, openConsole, post, put, send, withServer } from './browser.js'

endBrowserAfterAll()

interface Write {
  readonly type: string
  readonly commit_ts: number
}

/** Newest first. */
async function versionsOf(url: string, key: string): Promise<number[]> {
  const { writes } = (await post(url, '/v1/percolator/mvcc_get_by_key', { key })) as unknown as { writes: Write[] }
  return writes.filter(({ type }) => type === 'put' || type === 'delete').map(({ commit_ts }) => commit_ts)
}

const value = (page: Page, text: string) => page.locator('pre.value-text', { hasText: text })

describe.skipIf(!hasBrowser)('time', () => {
  test('a comparison with now is made anew by the same form, and the slider keeps its width', () =>
    withServer(async ({ url }) => {
      const { ts } = await post(url, '/v1/percolator/tso', {})
      await put(url, 'p%2Fone', '1')
      const { page, errors } = await openConsole(url, `#/diff/p%2F?from=${ts}`)
      await page.getByRole('link', { name: 'p/one' }).waitFor()
      await put(url, 'p%2Ftwo', '2')
      await page.getByRole('button', { name: 'Compare' }).click()
      await page.getByRole('link', { name: 'p/two' }).waitFor()

      await page.goto(`${url}/console#/browse`)
      const slider = page.getByRole('slider', { name: 'Time' })
      const before = (await slider.boundingBox())?.width
      await slider.press('PageDown')
      await page.locator('.time.past').waitFor()
      expect((await slider.boundingBox())?.width).toBe(before)
      expect(errors).toEqual([])
    }))

  test('a click on a version leads to its time, which is part of the address', () =>
    withServer(async ({ url }) => {
      for (const text of ['first', 'second', 'third']) await put(url, 'k', text)
      const [, second = 0] = await versionsOf(url, 'k')
      const { page, errors } = await openConsole(url, '#/key/k')
      await value(page, 'third').waitFor()
      await page.getByRole('link', { name: String(second) }).click()
      await value(page, 'second').waitFor()
      expect(new URL(page.url()).hash).toBe(`#/key/k?at=${second}`)
      await page.getByText('read here').waitFor()

      await page.getByRole('link', { name: 'all keys' }).click()
      await page.getByRole('cell', { name: 'second' }).waitFor()
      await page.goBack()
      await value(page, 'second').waitFor()
      await page.goBack()
      await value(page, 'third').waitFor()
      await page.goForward()
      await page.getByRole('button', { name: 'Back to now' }).click()
      await value(page, 'third').waitFor()
      expect(new URL(page.url()).hash).toBe('#/key/k')
      expect(errors).toEqual([])
    }))

  test('a time that is typed, and what cannot be read', () =>
    withServer(async ({ url }) => {
      for (const text of ['first', 'second']) await put(url, 'k', text)
      const [second = 0, first = 0] = await versionsOf(url, 'k')
      const { page, errors } = await openConsole(url, '#/key/k')
      const type = async (text: string) => {
        await page.getByLabel('Go to a time').fill(text)
        await page.getByLabel('Go to a time').press('Enter')
      }
      await type(String(first))
      await value(page, 'first').waitFor()
      await type('1 h ago')
      await page.getByText('absent at that time').waitFor()
      await type('now')
      await value(page, 'second').waitFor()
      await type('3000-01-01')
      await page.getByRole('alert').getByText('ahead').waitFor()
      await type('soon')
      await page.getByRole('alert').getByText('Type a time such as').waitFor()

      const { safe_point } = await post(url, '/v1/admin/gc', { safe_point: second })
      expect(safe_point).toBe(second)
      await page.goto(`${url}/console#/key/k?at=${first}`)
      await page.getByText('before the safe point').waitFor()
      await type('1 h ago')
      await page.getByRole('alert').getByText('before the safe point').waitFor()
      await page.getByRole('button', { name: 'Earliest time' }).click()
      await value(page, 'second').waitFor()
      expect(errors).toEqual([])
    }))

  test('two versions are compared line by line, and the address says which', () =>
    withServer(async ({ url }) => {
      for (const text of ['{"a":1,"b":2}', '{"a":1,"b":3}']) await put(url, 'k', text)
      await fetch(`${url}/v1/kv/k`, { method: 'DELETE' })
      const [deleted = 0, second = 0, first = 0] = await versionsOf(url, 'k')
      const { page, errors } = await openConsole(url, `#/key/k?at=${second}`)
      await page.getByRole('link', { name: 'Compare with the newest version' }).click()
      await page.getByText('The key was absent at last').waitFor()
      expect(new URL(page.url()).hash).toBe(`#/key/k?at=${second}&from=${second}&to=${deleted}`)
      await page.getByLabel('from', { exact: true }).selectOption(String(first))
      await page.getByLabel('to', { exact: true }).selectOption(String(second))
      await page.getByText('1 line removed, 1 added').waitFor()
      expect(await page.locator('.lines').textContent()).toBe('  {\n    "a": 1,\n-   "b": 2\n+   "b": 3\n  }\n')
      await page.goBack()
      await page.getByRole('link', { name: 'Compare with the newest version' }).waitFor()
      await page.goto(`${url}/console#/key/k?from=${first}&to=${second}`)
      await page.getByText('1 line removed, 1 added').waitFor()
      await page.getByRole('link', { name: 'Close the comparison' }).click()
      await page.getByRole('link', { name: 'Compare with the version before' }).waitFor()
      expect(errors).toEqual([])
    }))

  test('a version is restored, also over a delete, and told what becomes of its expiry; not over a newer one', () =>
    withServer(async ({ url }) => {
      const expireTs = (Date.now() + 600_000) * 2048
      await post(url, '/v1/txn', { ops: [{ op: 'put', key: 'k', value: 'first', expire_ts: expireTs }] })
      await put(url, 'k', 'second')
      await fetch(`${url}/v1/kv/k`, { method: 'DELETE' })
      const [deleted = 0, , first = 0] = await versionsOf(url, 'k')
      const { page, errors } = await openConsole(url, `#/key/k?at=${first}`)
      const restore = page.getByRole('button', { name: 'Restore', exact: true })
      await page.getByRole('button', { name: 'Restore this version' }).click()
      await page.getByText('as then').waitFor()
      await put(url, 'k', 'somebody else')
      await restore.click()
      await page.getByRole('alert').getByText('Somebody was faster: k has the version').waitFor()
      expect(await get(url, 'k')).toBe('somebody else')

      await page.getByRole('button', { name: 'Cancel' }).press('Enter')
      const focused = () => page.evaluate('document.activeElement.textContent')
      await expect.poll(focused).toBe('Restore this version') // By keyboard one goes on where one was.
      await page.getByRole('button', { name: 'Reload' }).click()
      await page.getByRole('button', { name: 'Restore this version' }).press('Enter')
      await expect.poll(focused).toBe('Cancel')
      await restore.click()
      await page.getByRole('button', { name: 'Edit' }).waitFor() // It is now again.
      const { results } = await post(url, '/v1/txn', { ops: [{ op: 'get', key: 'k' }] })
      expect(results).toMatchObject([{ value: 'first', expire_ts: expireTs }])

      await page.goto(`${url}/console#/key/k?at=${deleted}`)
      await page.getByRole('button', { name: 'Delete again' }).click()
      await restore.click()
      await page.getByRole('button', { name: 'Put a value' }).waitFor()
      expect(await get(url, 'k')).toBeUndefined()
      expect(errors).toEqual([])
    }))

  test('what changed below a prefix, and the undo of it: refused if a key has changed since, told what is kept', () =>
    withServer(async ({ url }) => {
      const { fence } = await send(url, 'PUT', '/v1/leases/leader', { holder: 'ann', ttl_ms: 600_000 })
      const expireTs = (Date.now() + 600_000) * 2048
      const ops = [
        { op: 'put', key: 'p/changed', value: 'old', lease: 'leader' },
        { op: 'put', key: 'p/expired', value: 'gone', ttl_ms: 2000 },
        { op: 'put', key: 'p/removed', value: 'old', expire_ts: expireTs },
        { op: 'put', key: 'p/same', value: 'same' },
        { op: 'put', key: 'q', value: 'elsewhere' },
      ]
      const { commit_ts: from } = await post(url, '/v1/txn', { checks: [{ lease: 'leader', fence }], ops })
      for (const key of ['added', 'changed']) await put(url, `p%2F${key}`, 'new')
      await fetch(`${url}/v1/kv/p%2Fremoved`, { method: 'DELETE' })
      await expect.poll(() => get(url, 'p%2Fexpired'), { timeout: 20_000 }).toBeUndefined()

      const { page, errors } = await openConsole(url, `#/browse/p%2F?at=${Number(from)}`)
      await page.getByRole('link', { name: 'What changed since' }).click()
      await page.getByText('5 keys compared, 4 changes').waitFor()
      expect(new URL(page.url()).hash).toBe(`#/diff/p%2F?from=${Number(from)}`)
      const lines = page.getByRole('list', { name: 'Changes' }).getByRole('listitem')
      await lines.filter({ hasText: 'p/changedchanged' }).getByText('+ new').waitFor()
      await lines.filter({ hasText: 'p/changedchanged' }).getByText('- old').waitFor()
      await lines.filter({ hasText: 'p/addedadded' }).getByText('+ new').waitFor()
      await lines.filter({ hasText: 'p/removedremoved' }).getByText('- old').waitFor()
      await lines.filter({ hasText: 'p/expiredexpired' }).getByText('- gone').waitFor()

      await page.getByLabel('Select p/added').check()
      await page.getByRole('button', { name: 'Undo selected (1)' }).click()
      await page.getByRole('button', { name: 'Restore', exact: true }).click()
      await page.getByText('4 keys compared, 3 changes').waitFor()
      expect(await get(url, 'p%2Fadded')).toBeUndefined()

      await page.getByRole('button', { name: 'Undo all' }).click()
      await page.getByText('goes with the lease leader, as then').waitFor()
      await page.getByText('as then').nth(1).waitFor()
      await put(url, 'p%2Fremoved', 'somebody else')
      await page.getByRole('button', { name: 'Restore 2 keys' }).click()
      await page.getByRole('alert').getByText('p/removed has the version').waitFor()
      expect(await get(url, 'p%2Fchanged')).toBe('new')

      await page.getByRole('button', { name: 'Cancel' }).click()
      await page.reload()
      await page.getByRole('button', { name: 'Undo all' }).click()
      await page.getByRole('button', { name: 'Restore 2 keys' }).click()
      await lines.filter({ hasText: 'the same value' }).nth(1).waitFor()
      const { results } = await post(url, '/v1/txn', {
        ops: ['changed', 'removed'].map((key) => ({ op: 'get', key: `p/${key}` })),
      })
      expect(results).toMatchObject([
        { value: 'old', lease_fence: fence },
        { value: 'old', expire_ts: expireTs },
      ])
      expect(errors).toEqual([])
    }))

  test('a large diff is paged; undo of more than a transaction takes is refused; times are typed, and said to be too early', () =>
    withServer(async ({ url }) => {
      const { ts: from } = await post(url, '/v1/percolator/tso', {})
      for (let n = 0; n < 12_000; n += 3000) {
        const keyOf = (i: number) => `many/${String(n + i).padStart(6, '0')}`
        await post(url, '/v1/txn', {
          ops: Array.from({ length: 3000 }, (_, i) => ({ op: 'put', key: keyOf(i), value: 'v' })),
        })
      }
      const { page, errors } = await openConsole(url, '#/diff/many%2F')
      await page.getByLabel('from', { exact: true }).fill(String(from))
      await page.getByRole('button', { name: 'Compare' }).click()
      await page.getByText('100 changes on this page').waitFor()
      await page.getByRole('button', { name: 'Next' }).click()
      await page.getByRole('link', { name: 'many/000199' }).waitFor()
      await page.getByRole('button', { name: 'Undo all' }).click()
      await page.getByRole('alert').getByText('up to 10000 keys').waitFor()
      await page.getByLabel('Prefix').fill('many/0000')
      await page.getByRole('button', { name: 'Compare' }).click()
      await page.getByText('100 keys compared, 100 changes.').waitFor()
      await page.getByRole('link', { name: 'many/000000' }).click()
      await page.getByText('The key was absent at first').waitFor()
      await page.goBack()

      await page.getByLabel('to', { exact: true }).fill(String(from))
      await page.getByRole('button', { name: 'Compare' }).click()
      await page.getByRole('alert').getByText('has to be before the second').waitFor()
      await post(url, '/v1/admin/gc', { safe_point: Number(from) + 1 })
      await page.getByText('is before the safe point').waitFor()
      expect(errors).toEqual([])
    }))

  test('a token that only reads may look at all of it, and sees no restore and no undo', () =>
    withTempDir(async (directory) => {
      const file = join(directory, 'tokens')
      await writeFile(file, 'rw token-of-a-writer\nro token-of-a-reader\n', { mode: 0o600 })
      await withServer(
        async ({ url }) => {
          const headers = { authorization: 'Bearer token-of-a-writer' }
          const commits: number[] = []
          for (const body of ['first', 'second']) {
            const response = await fetch(`${url}/v1/kv/k`, { method: 'PUT', body, headers })
            commits.push(((await response.json()) as { commit_ts: number }).commit_ts)
          }
          const [first = 0] = commits
          const { page, errors } = await openConsole(url, `#/key/k?at=${first}&from=${first}&to=${commits[1]}`)
          const use = async (token: string) => {
            await page.getByLabel('Token').fill(token)
            await page.getByRole('button', { name: 'Use' }).click()
          }
          await use('token-of-a-reader')
          await page.getByText('1 line removed, 1 added').waitFor()
          expect(await page.getByRole('button', { name: 'Restore' }).count()).toBe(0)
          await page.goto(`${url}/console#/diff?from=${first}`)
          await page.getByText('1 keys compared, 1 changes').waitFor()
          await page.getByText('+ second').waitFor()
          expect(await page.getByRole('button', { name: 'Undo' }).count()).toBe(0)
          expect(await page.getByRole('checkbox').count()).toBe(0)
          await page.getByRole('button', { name: 'Forget token' }).click()
          await use('token-of-a-writer')
          await page.getByRole('button', { name: 'Undo all' }).waitFor()
          expect(errors).toEqual([])
        },
        ['--token-file', file],
      )
    }))
})
