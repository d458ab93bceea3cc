import { exec } from 'node:child_process'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { endBrowserAfterAll, get, hasBrowser, openConsole, post, put, send, withServer } from './browser.js'

endBrowserAfterAll()

const CLIPBOARD = { permissions: ['clipboard-read', 'clipboard-write'] }
const HOUR_MS = 3_600_000

const tso = async (url: string): Promise<number> => Number((await post(url, '/v1/percolator/tso', {}))['ts'])

async function lock(url: string, key: string, primary = key): Promise<number> {
  const startTs = await tso(url)
  const mutations = [{ op: 'put', key, value: 'of the lock' }]
  await post(url, '/v1/percolator/prewrite', { mutations, primary, start_ts: startTs, lock_ttl: HOUR_MS })
  return startTs
}

async function versionOf(url: string, key: string): Promise<Record<string, unknown>> {
  const { results } = await post(url, '/v1/txn', { ops: [{ op: 'get', key }] })
  return (results as Record<string, unknown>[])[0] ?? {}
}

describe.skipIf(!hasBrowser)('expiry', () => {
  test('is set, changed and dropped; value and lease stay; a key that has changed is left alone', () =>
    withServer(async ({ url }) => {
      const { fence } = await send(url, 'PUT', '/v1/leases/leader', { holder: 'ann', ttl_ms: HOUR_MS })
      const ops = [{ op: 'put', key: 'k', value: 'v', lease: 'leader' }]
      await post(url, '/v1/txn', { checks: [{ lease: 'leader', fence }], ops })
      const { page, errors } = await openConsole(url)
      await page.getByRole('row', { name: 'k' }).getByText('lease', { exact: true }).waitFor()
      await page.getByRole('link', { name: 'k', exact: true }).click()
      const expiry = page.getByRole('button', { name: 'Expiry' })
      const set = page.getByRole('button', { name: 'Set expiry' })
      await expiry.click()
      await page.getByLabel('Expires').fill('-1')
      await set.click()
      await page.getByLabel('Expires').fill('90')
      await set.click()
      await page.getByText(/expires in 1 h [23]\d min/).waitFor()
      const first = await versionOf(url, 'k')
      expect(first).toMatchObject({ value: 'v', lease_fence: fence })

      await expiry.click()
      await page.getByLabel('Expires', { exact: true }).fill('2100-01-02T03:04:05')
      await set.click()
      await expect.poll(() => page.locator('.facts').textContent()).toContain('2100-01-02 03:04:05.000')
      const second = await versionOf(url, 'k')
      expect(second).toMatchObject({ value: 'v', lease_fence: fence })
      expect(Number(second['expire_ts'])).toBeGreaterThan(Number(first['expire_ts']))
      await page.getByRole('link', { name: 'all keys' }).click()
      await page.getByText(/expires in \d+ d/).waitFor()
      await page.goBack()

      await expiry.click()
      await post(url, '/v1/txn', { ops: [{ op: 'touch', key: 'k', ttl_ms: HOUR_MS }] })
      await page.getByRole('button', { name: 'Never expire' }).click()
      await page.getByText('Somebody has changed this key').waitFor()
      expect((await versionOf(url, 'k'))['expire_ts']).toBeDefined()
      await page.getByRole('button', { name: 'Reload' }).click()
      await page.getByText(/expires in [56]\d min/).waitFor()
      await page.getByRole('button', { name: 'Never expire' }).click()
      await page.getByText(/expires in/).waitFor({ state: 'detached' })
      const { commit_ts: _, ...last } = await versionOf(url, 'k')
      expect(last).toEqual({ found: true, value: 'v', lease_fence: fence })
      expect(errors).toEqual([])
    }))

  test('a timestamp is a time, and a click copies the number', () =>
    withServer(async ({ url }) => {
      await put(url, 'k', 'v')
      const { commit_ts: commitTs } = await versionOf(url, 'k')
      const { page, errors } = await openConsole(url, '', CLIPBOARD)
      const time = page.getByRole('row', { name: 'k' }).getByTitle(String(commitTs))
      expect(await time.textContent()).not.toContain(String(commitTs))
      await time.press('Enter')
      await page.getByText('copied').waitFor()
      expect(await page.evaluate('navigator.clipboard.readText()')).toBe(String(commitTs))
      expect(errors).toEqual([])
    }))
})

describe.skipIf(!hasBrowser)('locks in the way', () => {
  test('only locked keys are shown as of before, and a note names them', () =>
    withServer(async ({ url }) => {
      for (const key of ['a', 'c', 'e', 'f%2F1']) await put(url, key, 'before')
      const startTs = await lock(url, 'c', 'elsewhere')
      await lock(url, 'd')
      await lock(url, 'f/1')
      for (const key of ['a', 'e', 'g']) await put(url, key, 'after')
      const { page, errors } = await openConsole(url)
      const note = page.getByRole('region', { name: 'Locks in the way' })
      await note.getByText(/primary elsewhere, time left: 5\d min/).waitFor()
      await note.getByTitle(String(startTs)).waitFor()
      const rowOf = (key: string) =>
        page.getByRole('row').filter({ has: page.getByRole('link', { name: key, exact: true }) })
      await rowOf('a').getByText('after').waitFor()
      await rowOf('c').getByText('before').waitFor()
      await rowOf('e').getByText('after').waitFor()
      await rowOf('g').getByText('after').waitFor() // Born after the lock.
      await rowOf('d').getByText('locked').waitFor() // Has nothing but its lock.
      await rowOf('f/').waitFor()
      expect(await page.getByText('of the lock').count()).toBe(0)
      await note.getByRole('link', { name: 'Locks' }).click()
      await page.getByRole('rowheader').getByTitle(String(startTs)).waitFor()
      expect(await get(url, 'a')).toBe('after')
      expect(errors).toEqual([])
    }))

  test('more locks than one slice passes, side by side', () =>
    withServer(async ({ url }) => {
      const keys = Array.from({ length: 40 }, (_, i) => `k${String(i).padStart(2, '0')}`)
      const ops = keys.map((key) => ({ op: 'put', key, value: `old ${key}` }))
      await post(url, '/v1/txn', { ops: [...ops, { op: 'put', key: 'l', value: 'free' }] })
      const mutations = keys.map((key) => ({ op: 'put', key, value: 'new' }))
      await post(url, '/v1/percolator/prewrite', {
        ...{ mutations, primary: 'k00', start_ts: await tso(url), lock_ttl: HOUR_MS },
      })
      const { page, errors } = await openConsole(url)
      await page.getByText('37 more keys are locked').waitFor()
      await page.getByRole('cell', { name: 'old k39' }).waitFor()
      await page.getByRole('cell', { name: 'free' }).waitFor()
      expect(await page.getByRole('rowheader').count()).toBe(41)
      expect(errors).toEqual([])
    }))
})

test.skipIf(!hasBrowser)('an empty store says what to do first, and the line for the shell works', () =>
  withServer(async ({ url }) => {
    const { page, errors } = await openConsole(url, '', CLIPBOARD)
    await page.getByRole('button', { name: 'Copy' }).click()
    await page.getByText('Copied').waitFor()
    const line = String(await page.evaluate('navigator.clipboard.readText()'))
    await promisify(exec)(line)
    expect(await get(url, 'hello')).toBe('world')
    expect(await page.getByRole('link', { name: 'reference' }).getAttribute('href')).toBe(`${url}/docs`)
    await page.getByRole('link', { name: 'Step a transaction' }).click()
    await page.getByRole('button', { name: 'Begin' }).waitFor()
    expect(errors).toEqual([])
  }),
)
