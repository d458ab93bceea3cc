import type { Page } from 'playwright-core'
import { describe, expect, test } from 'vitest'
import { endBrowserAfterAll, get, hasBrowser, openConsole, post, put, withServer } from './browser.js'

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

      await page.getByRole('button', { name: 'Cancel' }).click()
      await page.getByRole('button', { name: 'Reload' }).click()
      await page.getByRole('button', { name: 'Restore this version' }).click()
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
})
