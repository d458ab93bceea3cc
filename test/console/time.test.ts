import type { Page } from 'playwright-core'
import { describe, expect, test } from 'vitest'
import { endBrowserAfterAll, hasBrowser, openConsole, post, put, withServer } from './browser.js'

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
})
