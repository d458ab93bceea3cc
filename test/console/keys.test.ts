import { exec } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { withTempDir } from '../process/server-process.js'
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
      await page.getByRole('heading', { name: 'Locks', exact: true }).waitFor()
      await page.getByTitle(String(startTs)).waitFor()
      expect(await get(url, 'a')).toBe('after')
      expect(errors).toEqual([])
    }))

  test('a key is shown as others wrote it while the transaction that has locked it now was open', () =>
    withServer(async ({ url }) => {
      const startTs = await tso(url)
      await put(url, 'k', 'committed meanwhile')
      const common = { primary: 'k', start_ts: startTs, for_update_ts: await tso(url), lock_ttl: HOUR_MS }
      await post(url, '/v1/percolator/acquire_pessimistic_lock', { ...common, keys: ['k'] })
      await post(url, '/v1/percolator/prewrite', {
        ...{ ...common, mutations: [{ op: 'put', key: 'k', value: 'of the lock' }], pessimistic_actions: ['do'] },
      })
      const { page, errors } = await openConsole(url)
      await page.getByRole('region', { name: 'Locks in the way' }).waitFor()
      await page.getByRole('cell', { name: 'committed meanwhile' }).waitFor()
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

describe.skipIf(!hasBrowser)('finding', () => {
  test('/ leads to the search, from every view; parts of keys, and a key by its name', () =>
    withServer(async ({ url }) => {
      for (const key of ['user%2FAnn', 'user%2Fann%2Fmail', 'user%2Fbob', 'ann']) await put(url, key, 'v')
      await lock(url, 'user/bob')
      const { page, errors } = await openConsole(url, '#/locks')
      await page.getByRole('heading', { name: 'Locks', exact: true }).waitFor()
      await page.keyboard.press('/')
      const field = page.getByLabel('Search')
      await expect.poll(() => field.evaluate('document.activeElement.id')).toBe('search')
      await page.keyboard.type('ann')
      await page.keyboard.press('Enter')
      const results = page.getByRole('search')
      await results.getByText('3 found among 4 keys').waitFor()
      expect(await results.getByRole('listitem').allTextContents()).toEqual([
        'ann exactly',
        'user/Ann',
        'user/ann/mail',
      ])
      await page.getByRole('link', { name: 'user/', exact: true }).click()
      await page.getByRole('link', { name: 'bob', exact: true }).waitFor()
      await page.getByRole('heading', { name: 'Browse' }).click()
      await page.keyboard.press('/')
      await page.keyboard.type('bo/')
      expect(await field.inputValue()).toBe('bo/') // A slash in the field is text.
      await field.fill('bob')
      await page.keyboard.press('Enter')
      await results.getByText('1 found among 3 keys').waitFor()
      await results.getByRole('link', { name: 'user/bob' }).press('Enter')
      await page.getByRole('heading', { name: 'user/bob' }).waitFor()
      expect(errors).toEqual([])
    }))

  test('a search is stopped and goes on, and ends after so many hits', () =>
    withServer(async ({ url }) => {
      const ops = Array.from({ length: 1500 }, (_, i) => ({
        op: 'put',
        key: `k${String(i).padStart(4, '0')}`,
        value: '',
      }))
      await post(url, '/v1/txn', { ops })
      const { page, errors } = await openConsole(url)
      let goOn = (): void => {}
      const held = new Promise<void>((resolve) => (goOn = resolve))
      await page.getByRole('link', { name: 'k0000' }).waitFor()
      await page.route('**/v1/percolator/scan', async (route) => {
        if (route.request().postDataJSON().start === 'k0999\u0000') await held
        await route.continue().catch(() => {}) // The page has given it up.
      })
      await page.getByLabel('Search').fill('1234')
      await page.getByRole('button', { name: 'Search' }).click()
      await page.getByText('0 found among 1,000 keys so far').waitFor()
      await page.getByRole('button', { name: 'Stop' }).click()
      goOn()
      await page.getByRole('button', { name: 'Search on' }).click()
      await page.getByText('1 found among 1,500 keys').waitFor()
      await page.getByLabel('Search').fill('k1')
      await page.getByRole('button', { name: 'Search', exact: true }).click()
      await page.getByText('100 found').waitFor()
      expect(await page.getByRole('search').getByRole('link').count()).toBe(100)
      await page.getByRole('button', { name: 'Search on' }).click()
      await page.getByText('200 found').waitFor()
      await page.getByRole('link', { name: 'k1199' }).waitFor()
      await page.getByRole('button', { name: 'Close' }).click()
      await page.getByText('200 found').waitFor({ state: 'detached' })
      expect(errors).toEqual([])
    }))

  test('folders tell their keys, size and newest commit, up to a bound', () =>
    withServer(async ({ url }) => {
      await put(url, 'small%2Fone', 'x'.repeat(100))
      await put(url, 'small%2Ftwo', 'x'.repeat(93))
      const { commit_ts: newest } = await versionOf(url, 'small/two')
      for (let i = 0; i < 5; i++) await put(url, `large%2F${i}`, 'x'.repeat(1_000_000))
      const ops = Array.from({ length: 6000 }, (_, i) => ({
        op: 'put',
        key: `many/${String(i).padStart(4, '0')}`,
        value: '',
      }))
      for (let i = 0; i < ops.length; i += 2000) await post(url, '/v1/txn', { ops: ops.slice(i, i + 2000) })
      const { page, errors } = await openConsole(url)
      const small = page.getByRole('row', { name: 'small/' })
      await small.getByText('2 keys, 211 B').waitFor()
      await small.getByTitle(String(newest)).waitFor()
      await page
        .getByRole('row', { name: 'large/' })
        .getByText(/more than \d keys, \d\.\d MiB|5 keys, 4.8 MiB/)
        .waitFor()
      await page
        .getByRole('row', { name: 'many/' })
        .getByText(/more than 5,\d+ keys/)
        .waitFor()
      expect(errors).toEqual([])
    }))
})

describe.skipIf(!hasBrowser)('several keys', () => {
  test('are selected by keyboard, copied, exported, and deleted unless one has changed', () =>
    withServer(async ({ url }) => {
      for (const key of ['a', 'b', 'c', 'folder%2Fd']) await put(url, key, `of ${key}`)
      await put(url, '%FF', Uint8Array.of(255))
      const { page, errors } = await openConsole(url, '', { ...CLIPBOARD, viewport: { width: 390, height: 800 } })
      const bar = page.getByRole('region', { name: 'Selected keys' })
      await page.getByLabel('Select all keys').press('Space')
      await bar.getByText('4 keys selected').waitFor()
      await page.getByLabel('Select b').press('Space')
      await bar.getByText('3 keys selected').waitFor()
      await bar.getByRole('button', { name: 'Copy names' }).click()
      await bar.getByText('Copied').waitFor()
      expect(await page.evaluate('navigator.clipboard.readText()')).toBe('a\nc\n\\xff')

      const exported = async (press: () => Promise<void>): Promise<unknown[]> => {
        const [file] = await Promise.all([page.waitForEvent('download'), press()])
        const lines = (await readFile(await file.path(), 'utf8')).trimEnd().split('\n')
        return lines.map((line) => JSON.parse(line) as unknown)
      }
      const three = await exported(() => bar.getByRole('button', { name: 'Export' }).press('Enter'))
      expect(three).toEqual([
        { key: 'a', value: 'of a', commit_ts: (await versionOf(url, 'a'))['commit_ts'] },
        { key: 'c', value: 'of c', commit_ts: expect.any(Number) },
        { key: { base64: '/w==' }, value: { base64: '/w==' }, commit_ts: expect.any(Number) },
      ])
      const all = await exported(() => page.getByRole('button', { name: 'Export all' }).click())
      expect(all).toHaveLength(5)

      await put(url, 'c', 'changed')
      await bar.getByRole('button', { name: 'Delete' }).click()
      await bar.getByRole('button', { name: 'Delete 3 keys' }).click()
      await bar.getByText('Changed since you saw it: c. Nothing was deleted.').waitFor()
      expect(await get(url, 'a')).toBe('of a')
      await page.getByRole('button', { name: 'Reload' }).click()
      await bar.waitFor({ state: 'detached' })
      await page.getByLabel('Select c').click()
      await page.getByLabel('Select a', { exact: true }).click()
      await bar.getByRole('button', { name: 'Delete' }).press('Enter')
      await bar.getByRole('button', { name: 'Delete 2 keys' }).press('Enter')
      await page.getByRole('link', { name: 'c', exact: true }).waitFor({ state: 'detached' })
      expect([await get(url, 'a'), await get(url, 'b'), await get(url, 'c')]).toEqual([undefined, 'of b', undefined])
      expect(errors).toEqual([])
    }))

  test('a prefix is deleted after its count was shown', () =>
    withServer(async ({ url }) => {
      const ops = Array.from({ length: 1200 }, (_, i) => ({ op: 'put', key: `old/${i}`, value: '' }))
      await post(url, '/v1/txn', { ops: [...ops, { op: 'put', key: 'old', value: 'stays' }] })
      const { page, errors } = await openConsole(url)
      await page.getByRole('button', { name: 'Export all' }).waitFor()
      expect(await page.getByRole('button', { name: 'Delete all' }).count()).toBe(0) // The whole store is not a folder.
      await page.getByRole('link', { name: 'old/', exact: true }).click()
      await page.getByRole('button', { name: 'Delete all' }).click()
      await page.getByRole('button', { name: 'Delete 1,200 keys' }).click()
      expect(await get(url, 'old%2F7')).toBe('')
      await page.getByRole('button', { name: 'Keep', exact: true }).click()
      await page.getByRole('button', { name: 'Delete 1,200 keys' }).click()
      await page.getByRole('button', { name: 'Delete all below old/' }).click()
      await page.getByText('There is no key below this prefix').waitFor()
      expect(await get(url, 'old')).toBe('stays')
      expect(errors).toEqual([])
    }))
})

test.skipIf(!hasBrowser)('the keys below a prefix are deleted to the last, whatever page is looked at meanwhile', () =>
  withServer(async ({ url }) => {
    const ops = Array.from({ length: 1200 }, (_, i) => ({ op: 'put', key: `old/${i}`, value: '' }))
    await post(url, '/v1/txn', { ops })
    const { page, errors } = await openConsole(url, '#/browse/old%2F')
    let isFirst = true
    let goOn = (): void => {}
    const wait = new Promise<void>((resolve) => {
      goOn = resolve
    })
    await page.route('**/v1/kv?*', async (route) => {
      if (route.request().method() === 'DELETE' && !isFirst) await wait
      isFirst &&= route.request().method() !== 'DELETE'
      await route.continue()
    })
    await page.getByRole('button', { name: 'Delete all' }).click()
    await page.getByRole('button', { name: 'Delete 1,200 keys' }).click()
    await page.getByRole('button', { name: 'Delete all below old/' }).click()
    await page.getByText('1,000 keys deleted').waitFor()
    await page.getByRole('button', { name: 'Next' }).click()
    await page.getByText('page 2').waitFor()
    await page.getByRole('button', { name: 'Previous' }).click()
    goOn()
    await page.getByText('1,200 keys deleted').waitFor()
    await page.getByText('There is no key below this prefix').waitFor()
    expect(errors).toEqual([])
  }),
)

describe.skipIf(!hasBrowser)('JSON', () => {
  test('is coloured and indented with its numbers as they are, formatted on request, and its mistakes are located', () =>
    withServer(async ({ url }) => {
      await put(url, 'k', '{"id":12345678901234567890,"on":[true,null]}')
      const { page, errors } = await openConsole(url, '#/key/k')
      const indented = '{\n  "id": 12345678901234567890,\n  "on": [\n    true,\n    null\n  ]\n}'
      await page.locator('.json-name').first().waitFor()
      expect(await page.locator('pre').textContent()).toBe(indented)
      expect(await page.locator('.json-number').textContent()).toBe('12345678901234567890')
      await page.getByRole('button', { name: 'Edit' }).click()
      const value = page.getByLabel('Value', { exact: true })
      await page.getByRole('button', { name: 'Format' }).click()
      expect(await value.inputValue()).toBe(indented)
      await value.fill('{\n  "id": 1,\n}')
      await page.getByRole('button', { name: 'Save' }).click()
      await page.getByText('in line 3, column 1 a name in double quotes is expected. Nothing was saved yet').waitFor()
      expect(await value.evaluate('document.activeElement.selectionStart')).toBe(13)
      await value.fill('{"id": 1}')
      await page.getByRole('button', { name: 'Save' }).click()
      await page.locator('.json-number', { hasText: /^1\s$/ }).waitFor()
      expect(await get(url, 'k')).toBe('{"id": 1}')
      expect(errors).toEqual([])
    }))
})

test.skipIf(!hasBrowser)('a read-only token exports and copies, and has no button that writes', () =>
  withTempDir(async (directory) => {
    const file = join(directory, 'tokens')
    await writeFile(file, 'rw token-of-a-writer\nro token-of-a-reader\n', { mode: 0o600 })
    const body = async ({ url }: { readonly url: string }): Promise<void> => {
      const headers = { authorization: 'Bearer token-of-a-writer' }
      await fetch(`${url}/v1/kv/f%2Fk?ttl_ms=${HOUR_MS}`, { method: 'PUT', body: 'v', headers })
      const { page, errors } = await openConsole(url, '#/browse/f%2F')
      await page.getByLabel('Token').fill('token-of-a-reader')
      await page.getByRole('button', { name: 'Use' }).click()
      await page.getByLabel('Select f/k').check()
      await page.getByRole('region', { name: 'Selected keys' }).getByRole('button', { name: 'Export' }).waitFor()
      await page.getByRole('button', { name: 'Export all' }).waitFor()
      expect(await page.getByRole('button', { name: 'Delete' }).count()).toBe(0)
      await page.getByRole('link', { name: 'k', exact: true }).click()
      await page.getByText(/expires in 5\d min/).waitFor()
      expect(await page.getByRole('button', { name: /Edit|Expiry|Delete/ }).count()).toBe(0)
      expect(errors).toEqual([])
    }
    await withServer(body, ['--token-file', file])
  }),
)
