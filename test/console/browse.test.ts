import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { withTempDir } from '../process/server-process.js'
import { endBrowserAfterAll, get, hasBrowser, openConsole, post, put, send, withServer } from './browser.js'

/** Several pages of the server's too. */
const KEYS = process.env['PERKV_TEST_LONG'] ? 20_000 : 4000

endBrowserAfterAll()

describe.skipIf(!hasBrowser)('browsing', () => {
  test('folders, keys, values; a key is created, edited against its version, and deleted', () =>
    withServer(async ({ url }) => {
      await put(url, 'user%2Fann%2Fmail', 'ann@example.com')
      await put(url, 'user%2Fbob', '{"age":7,"tags":["a"]}')
      await put(url, '%FFraw', Uint8Array.of(255, 0, 65))
      const { page, errors } = await openConsole(url)
      await page.getByRole('link', { name: 'user/', exact: true }).click()
      await page.getByRole('link', { name: 'ann/', exact: true }).waitFor()
      await page.getByRole('link', { name: 'bob', exact: true }).click()
      await page.getByText('"age": 7').waitFor()
      await page.getByRole('button', { name: 'Hex' }).click()
      await page.getByText('7b 22 61 67 65').waitFor()

      await page.getByRole('button', { name: 'Edit' }).click()
      await page.getByLabel('Value', { exact: true }).fill('eight')
      await put(url, 'user%2Fbob', 'somebody else')
      await page.getByRole('button', { name: 'Save' }).click()
      await page.getByText('Somebody has changed this key').waitFor()
      expect(await get(url, 'user%2Fbob')).toBe('somebody else')
      const facts = page.locator('.facts')
      const before = await facts.textContent()
      await page.getByRole('button', { name: 'Reload' }).click()
      await expect.poll(() => facts.textContent()).not.toBe(before)
      // What was loaded was not seen in the editor, and is not overwritten.
      await page.getByRole('button', { name: 'Save' }).click()
      await page.getByRole('button', { name: 'Save', disabled: true }).waitFor({ state: 'detached' })
      await page.getByText('Somebody has changed this key').waitFor()
      expect(await get(url, 'user%2Fbob')).toBe('somebody else')
      await page.getByRole('button', { name: 'Cancel' }).click()
      await page.locator('pre', { hasText: 'somebody else' }).waitFor()
      await page.getByRole('button', { name: 'Edit' }).click()
      await page.getByLabel('Value', { exact: true }).fill('eight')
      await page.getByRole('button', { name: 'Save' }).click()
      await page.locator('pre', { hasText: 'eight' }).waitFor()
      expect(await get(url, 'user%2Fbob')).toBe('eight')

      await page.getByRole('button', { name: 'Delete' }).click()
      await page.getByRole('button', { name: 'Delete for good' }).click()
      await page.getByText('absent').waitFor()
      expect(await get(url, 'user%2Fbob')).toBeUndefined()

      await page.getByRole('link', { name: 'all keys' }).click()
      await page.getByRole('link', { name: '\\xffraw' }).click()
      await page.getByText('ff 00 41').waitFor()
      await page.getByRole('button', { name: 'Edit' }).click()
      await page.getByLabel('Value', { exact: true }).fill('00 ff 1')
      await page.getByRole('button', { name: 'Save' }).click()
      await page.getByText('Hex is pairs').waitFor()
      await page.getByLabel('Value', { exact: true }).fill('00 ff 10')
      await page.getByRole('button', { name: 'Save' }).click()
      await page.getByText('00 ff 10').waitFor()

      await page.getByRole('link', { name: 'all keys' }).click()
      await page.getByLabel('Prefix').fill('fresh/one')
      await page.getByRole('button', { name: 'Open or create key' }).click()
      await page.getByRole('button', { name: 'Put a value' }).click()
      await page.getByLabel('Value', { exact: true }).fill('new')
      await page.getByRole('button', { name: 'Save' }).click()
      await page.locator('pre', { hasText: 'new' }).waitFor()
      expect(await get(url, 'fresh%2Fone')).toBe('new')
      expect(errors).toEqual([])
    }))

  test('an edit keeps the expiry and the lease of a key, which are shown', () =>
    withServer(async ({ url }) => {
      const { fence } = await send(url, 'PUT', '/v1/leases/leader', { holder: 'ann', ttl_ms: 60_000 })
      const checks = [{ lease: 'leader', fence }]
      const expireTs = (Date.now() + 600_000) * 2048
      const ops = [
        { op: 'put', key: 'both', value: 'old', expire_ts: expireTs, lease: 'leader' },
        { op: 'put', key: 'ttl', value: 'old', expire_ts: expireTs },
        { op: 'put', key: 'lease', value: 'old', lease: 'leader' },
        { op: 'put', key: 'neither', value: 'old' },
      ]
      await post(url, '/v1/txn', { checks, ops })
      const { page, errors } = await openConsole(url)
      const edit = async (key: string, value: string) => {
        await page.goto(`${url}/console#/key/${key}`)
        await page.getByRole('heading', { name: key }).waitFor()
        await page.getByRole('button', { name: 'Edit' }).click()
        await page.getByLabel('Value', { exact: true }).fill(value)
      }
      for (const { key, ...put } of ops) {
        await edit(key, 'new')
        await page.getByRole('button', { name: 'Save' }).click()
        await page.locator('pre', { hasText: 'new' }).waitFor()
        const { results } = await post(url, '/v1/txn', { ops: [{ op: 'get', key }] })
        const lease_fence = 'lease' in put ? fence : undefined
        const expire_ts = 'expire_ts' in put ? expireTs : undefined
        const { commit_ts: _, ...found } = (results as Record<string, unknown>[])[0] ?? {}
        expect({ lease_fence: undefined, expire_ts: undefined, ...found }, key).toEqual({
          ...{ found: true, value: 'new', lease_fence, expire_ts },
        })
        await expect
          .poll(() => page.locator('.facts').textContent())
          .toContain(lease_fence ? 'lease leader' : key === 'ttl' ? 'expires in ' : 'version')
      }
      await edit('lease', 'newer')
      await put(url, 'lease', 'somebody else')
      await page.getByRole('button', { name: 'Save' }).click()
      await page.getByText('Somebody has changed this key').waitFor()
      expect(await get(url, 'lease')).toBe('somebody else')
      expect(errors).toEqual([])
    }))

  test('broken JSON is checked before it is saved, and line ends stay as they are', () =>
    withServer(async ({ url }) => {
      await put(url, 'config', '{"a":1}')
      await put(url, 'dos', 'one\r\ntwo')
      const { page, errors } = await openConsole(url, '#/key/config')
      const [save, value] = [page.getByRole('button', { name: 'Save' }), page.getByLabel('Value', { exact: true })]
      await page.getByRole('button', { name: 'Edit' }).click()
      await value.fill('{"a":1')
      await save.click()
      await page.getByText('This is not JSON').waitFor()
      expect(await get(url, 'config')).toBe('{"a":1}')
      await value.fill('{"a":')
      await save.click()
      await page.getByText('This is not JSON').waitFor()
      await page.getByRole('button', { name: 'Save anyway' }).click()
      await page.locator('pre', { hasText: '{"a":' }).waitFor()
      expect(await get(url, 'config')).toBe('{"a":')
      await page.getByRole('button', { name: 'Edit' }).click()
      await page.getByLabel('as hex').check()
      expect(await value.inputValue()).toBe('7b 22 61 22 3a')
      await page.getByLabel('as hex').uncheck()
      await value.fill('no JSON any more, and no longer meant as such')
      await save.click()
      await page.locator('pre', { hasText: 'no longer' }).waitFor()

      await page.goto(`${url}/console#/key/dos`)
      await page.getByRole('heading', { name: 'dos' }).waitFor()
      await page.getByRole('button', { name: 'Edit' }).click()
      expect(await value.inputValue()).toBe('6f 6e 65 0d 0a 74 77 6f')
      await page.getByLabel('as hex').click()
      await page.getByText('no text that a browser can edit').waitFor()
      await save.click()
      await page.locator('pre', { hasText: 'two' }).waitFor()
      expect(await get(url, 'dos')).toBe('one\r\ntwo')
      expect(errors).toEqual([])
    }))

  test('the columns of a key, a lock of another transaction, and the past by the slider', () =>
    withServer(async ({ url }) => {
      await put(url, 'k', 'first')
      await put(url, 'k', 'second')
      const { ts } = (await post(url, '/v1/percolator/tso', {})) as { ts: number }
      const mutations = [{ op: 'put', key: 'k', value: 'third' }]
      const locking = { mutations, primary: 'other', start_ts: ts, lock_ttl: 3_600_000 }
      await post(url, '/v1/percolator/prewrite', locking)
      const { page, errors } = await openConsole(url)
      await page.getByText('Locked keys are shown as they were before').waitFor()
      await page.getByRole('cell', { name: 'second' }).waitFor()
      await page.getByRole('rowheader').getByRole('link', { name: 'k', exact: true }).click()
      const rows = page.getByRole('region', { name: 'Columns of k' }).getByRole('row')
      await page.getByRole('cell', { name: 'primary @ other' }).waitFor()
      expect(await rows.count()).toBe(6) // The head, the lock, and a data and a write cell of each version.
      await page.locator('pre', { hasText: 'second' }).waitFor()
      await page
        .getByRole('slider', { name: 'Time' })
        .fill(await page.getByRole('slider', { name: 'Time' }).getAttribute('min').then(String))
      await page.getByText('absent at that time').waitFor()
      expect(await page.getByRole('button', { name: 'Put a value' }).count()).toBe(0)
      await page.getByRole('button', { name: 'Back to now' }).click()
      await page.locator('pre', { hasText: 'second' }).waitFor()
      expect(errors).toEqual([])
      const { locks } = (await post(url, '/v1/percolator/scan_lock', { max_ts: ts })) as { locks: unknown[] }
      expect(locks).toHaveLength(1) // Looking has ended nobody's transaction.
    }))

  test(`${KEYS} keys below a prefix are paged, beside a folder of as many`, () =>
    withServer(async ({ url }) => {
      for (const prefix of ['flat/', 'flat/more/'])
        for (let i = 0; i < KEYS; i += 2000) {
          const ops = Array.from({ length: 2000 }, (_, n) => ({
            ...{ op: 'put', key: `${prefix}${String(i + n).padStart(6, '0')}`, value: `${i + n}` },
          }))
          await post(url, '/v1/txn', { ops })
        }
      const { page, errors } = await openConsole(url, '#/browse/flat%2F')
      await page.getByRole('link', { name: '000000' }).waitFor()
      expect(await page.getByRole('table').getByRole('link').count()).toBe(100)
      await page.getByRole('button', { name: 'Next' }).click()
      await page.getByRole('link', { name: '000100' }).waitFor()
      await page.getByRole('cell', { name: '100', exact: true }).waitFor()
      await page.getByRole('button', { name: 'Next' }).click()
      await page.getByRole('link', { name: '000299' }).waitFor()
      await page.getByRole('button', { name: 'Previous' }).click()
      await page.getByRole('link', { name: '000100' }).waitFor()
      await page.getByRole('link', { name: 'all keys' }).click()
      await page.getByRole('link', { name: 'flat/', exact: true }).click()
      await page.getByRole('link', { name: '000000' }).waitFor()
      expect(errors).toEqual([])
    }))

  test('keys and values with HTML in them are text; a long key and a long value do not break the page', () =>
    withServer(async ({ url }) => {
      const nasty = '<img src=x onerror=alert(1)>"\'&amp;\u202e'
      await put(url, encodeURIComponent(nasty), '<script>alert(2)</script>')
      await put(url, encodeURIComponent(`${nasty}/in a folder`), '<b>bold</b>')
      const long = 'k'.repeat(1024)
      await put(url, long, 'v'.repeat(1024 * 1024))
      const { page, errors } = await openConsole(url)
      await page.getByText('<script>alert(2)</script>').waitFor()
      await page.getByRole('link', { name: '<img src=x onerror=alert(1)>"\'&amp;\\u{202e}', exact: true }).click()
      await page.locator('pre', { hasText: '<script>alert(2)</script>' }).waitFor()
      expect(await page.title()).toContain('<img')
      await page.getByRole('link', { name: 'all keys' }).click()
      await page.getByRole('link', { name: long }).click()
      await page.getByText('key of 1024 bytes').waitFor()
      expect((await page.locator('pre').textContent())?.length).toBeLessThan(100_000)
      await page.getByRole('button', { name: 'Show all 1.0 MiB' }).click()
      await page.getByRole('button', { name: 'Hex' }).click()
      const { width, client } = (await page.evaluate(
        '({ width: document.documentElement.scrollWidth, client: document.documentElement.clientWidth })',
      )) as { width: number; client: number }
      expect(width).toBeLessThanOrEqual(client)
      expect(await page.locator('img, b:not(.name b)').count()).toBe(0)
      expect(errors).toEqual([])
    }))
})

const TOKENS = 'rw token-of-a-writer\nro token-of-a-reader\nro token-of-one-app prefix=app/\n'

test.skipIf(!hasBrowser)('a token decides what is offered, and the server refuses the rest anyway', () =>
  withTempDir(async (directory) => {
    const file = join(directory, 'tokens')
    await writeFile(file, TOKENS, { mode: 0o600 })
    await withServer(
      async ({ url }) => {
        const authorization = 'Bearer token-of-a-writer'
        for (const key of ['app%2Fk', 'k'])
          await fetch(`${url}/v1/kv/${key}`, { method: 'PUT', body: 'v', headers: { authorization } })
        const { page, errors } = await openConsole(url, '#/key/k')
        await page.getByRole('heading', { name: 'Token needed' }).waitFor()
        const use = async (who: string) => {
          await page.getByLabel('Token').fill(`token-of-${who}`)
          await page.getByRole('button', { name: 'Use' }).click()
        }
        await use('nobody')
        await page.getByRole('heading', { name: 'Wrong token' }).waitFor()
        await use('a-writer')
        await page.getByRole('button', { name: 'Edit' }).waitFor()
        let answer = (): void => {}
        const held = new Promise<void>((resolve) => (answer = resolve))
        await page.route('**/v1/status', (route) => held.then(() => route.continue()))
        await page.getByRole('button', { name: 'Forget token' }).click()
        await page.getByLabel('Token').fill('token-of-a-reader') // Typed before the server has refused to answer without one.
        answer()
        await page.getByRole('heading', { name: 'Token needed' }).waitFor()
        await page.getByRole('button', { name: 'Use' }).click()
        await page.locator('pre', { hasText: 'v' }).waitFor()
        await page.getByText('read only').waitFor()
        expect(await page.getByRole('button', { name: /Edit|Delete|Put|create/ }).count()).toBe(0)
        const refused = await page.evaluate(
          `fetch('/v1/kv/k', { method: 'PUT', body: 'x', headers: { authorization: 'Bearer token-of-a-reader' } }).then(({ status }) => status)`,
        )
        expect(refused).toBe(403)
        await page.getByRole('button', { name: 'Forget token' }).click()
        await use('a-writer')
        await page.getByRole('button', { name: 'Edit' }).waitFor()
        await page.reload() // The token is kept in the tab.
        await page.getByRole('button', { name: 'Edit' }).waitFor()
        await page.getByRole('button', { name: 'Forget token' }).click()
        await use('one-app')
        await page.getByText(/is outside of what this token reaches/).waitFor()
        await page.getByRole('link', { name: 'Browse' }).click()
        await page.getByLabel('Prefix').fill('app/')
        await page.getByRole('button', { name: 'Browse' }).click()
        await page.getByRole('link', { name: 'k', exact: true }).click()
        await page.locator('pre', { hasText: 'v' }).waitFor()
        expect(await page.evaluate('localStorage.length')).toBe(0)
        expect(errors).toEqual([])
      },
      ['--token-file', file],
    )
  }),
)
