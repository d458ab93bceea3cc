import { writeFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { withTempDir } from '../process/server-process.js'
import { endBrowserAfterAll, get, hasBrowser, openConsole, post, put, send, withServer } from './browser.js'

endBrowserAfterAll()

const PHONE = { viewport: { width: 390, height: 800 } }

describe.skipIf(!hasBrowser)('leases', () => {
  test('who holds them, their keys, and the end of one, which is asked for twice; by keyboard, on a phone', () =>
    withServer(async ({ url }) => {
      const { fence } = await send(url, 'PUT', '/v1/leases/up/a', { holder: 'host-a', ttl_ms: 600_000 })
      await send(url, 'PUT', '/v1/leases/up/b', { holder: 'host-b', ttl_ms: 600_000 })
      await send(url, 'PUT', '/v1/leases/other', { holder: 'me', ttl_ms: 600_000 })
      const ops = [{ op: 'put', key: 'mail/a', value: '10.0.0.5', lease: 'up/a' }]
      await post(url, '/v1/txn', { checks: [{ lease: 'up/a', fence }], ops })
      const { page, errors } = await openConsole(url, '#/leases', PHONE)
      const entry = (name: string) => page.getByRole('listitem').filter({ has: page.getByRole('heading', { name }) })
      await entry('other').waitFor()
      await page.getByLabel('Names that begin with').fill('nothing/')
      await page.getByText('Nobody holds a lease whose name begins with nothing/.').waitFor()
      await page.getByLabel('Names that begin with').fill('up/')
      await entry('other').waitFor({ state: 'detached' })
      await entry('up/a').getByText('host-a').waitFor()
      await entry('up/a').getByText(String(fence)).waitFor()
      await entry('up/a')
        .getByText(/^[5-9] min/)
        .waitFor()
      await page.getByRole('button', { name: 'Attached keys of up/a' }).press('Enter')
      await entry('up/a').getByRole('link', { name: 'mail/a' }).waitFor()
      await page.getByRole('button', { name: 'Attached keys of up/b' }).click()
      await entry('up/b').getByText('No key is attached').waitFor()

      const end = entry('up/a').getByRole('button', { name: 'End', exact: true })
      await end.press('Enter')
      const group = page.getByRole('group', { name: /^End up\/a, which host-a holds\?/ })
      await group.waitFor()
      await page.keyboard.press('Escape')
      await group.waitFor({ state: 'detached' })
      await expect.poll(() => page.evaluate('document.activeElement.textContent')).toBe('End')
      await page.keyboard.press('Enter')
      await group.waitFor()
      await page.keyboard.press('Enter') // The focus is on the button that does it.
      await page.getByText('up/a is ended, and its attached keys are deleted.').waitFor()
      await entry('up/a').waitFor({ state: 'detached' })
      expect(await get(url, 'mail%2Fa')).toBeUndefined()
      expect((await fetch(`${url}/v1/leases/up/b`)).status).toBe(200)
      expect(errors).toEqual([])
    }))
})

describe.skipIf(!hasBrowser)('observers and consumers', () => {
  test('an observer is registered, filled, and deleted; what cannot be taken back is asked for twice', () =>
    withServer(async ({ url }) => {
      await put(url, 'order%2F1', 'x')
      const { page, errors } = await openConsole(url, '#/observers', PHONE)
      await page.getByText('Register an observer').press('Enter')
      await page.getByLabel('Name').fill('bill')
      await page.getByLabel('Keys that begin with').fill('order/')
      await page.getByLabel('Failed runs').fill('3')
      await page.getByRole('button', { name: 'Register', exact: true }).press('Enter')
      await page.getByText('bill is registered.').waitFor()
      const state = async () => (await (await fetch(`${url}/v1/observers/bill`)).json()) as Record<string, unknown>
      expect(await state()).toMatchObject({ prefix: 'order/', max_attempts: 3, pending: 0 })
      // A name that is taken by another range is refused, and the reason is shown.
      await page.getByLabel('Name').fill('bill')
      await page.getByRole('button', { name: 'Register', exact: true }).click()
      await page.getByRole('status').filter({ hasText: 'bill' }).filter({ hasNotText: 'is registered' }).waitFor()

      await page.getByRole('button', { name: 'Backfill' }).press('Enter')
      await page.getByRole('group', { name: /^Mark every key of bill \(order\/\*\)/ }).waitFor()
      await page.getByRole('button', { name: 'Backfill bill' }).press('Enter')
      await expect.poll(async () => (await state())['pending']).toBe(1)
      await page.getByRole('button', { name: 'Delete' }).click()
      await page.getByRole('button', { name: 'Keep' }).click()
      expect((await state())['pending']).toBe(1)
      await page.getByRole('button', { name: 'Delete' }).click()
      await page.getByRole('button', { name: 'Delete bill' }).click()
      await page.getByText('No observer is registered').waitFor()
      expect((await fetch(`${url}/v1/observers/bill`)).status).toBe(404)
      expect(errors).toEqual([])
    }))

  test('a consumer is moved to a timestamp, to a time and to now, and is deleted', () =>
    withServer(async ({ url }) => {
      const { position: first } = await send(url, 'PUT', '/v1/consumers/copy', { prefix: 'order/' })
      const { page, errors } = await openConsole(url, '#/observers', PHONE)
      const position = async () =>
        Number(((await (await fetch(`${url}/v1/consumers/copy`)).json()) as { position: number }).position)
      const open = () => page.getByRole('button', { name: 'Reset copy' }).press('Enter')
      const field = page.getByLabel('New position of copy')
      await open()
      await field.fill('tomorrow')
      await page.getByText('Type a time such as').waitFor()
      expect(await page.getByRole('button', { name: 'Move copy there' }).isDisabled()).toBe(true)
      await field.fill('2001-09-09T01:46:40.000Z')
      await page.getByText('handed out again').waitFor()
      await field.press('Enter')
      await page.getByText('copy stands at 2048000000002047.').waitFor()
      expect(await position()).toBe(1e12 * 2048 + 2047)
      await open()
      await page.getByRole('button', { name: 'Move copy to now' }).click()
      await page.getByText('copy stands at now.').waitFor()
      expect(await position()).toBeGreaterThan(Number(first))
      await page.getByRole('button', { name: 'Delete' }).click()
      await page.getByRole('button', { name: 'Delete copy' }).click()
      await page.getByText('No consumer is registered').waitFor()
      expect(errors).toEqual([])
    }))
})

describe.skipIf(!hasBrowser)('transactions that hold locks', () => {
  test('one that may be alive is ended by force: rolled back, or rolled forward where it is committed', () =>
    withServer(async ({ url }) => {
      const tso = async (): Promise<number> => Number((await post(url, '/v1/percolator/tso', {}))['ts'])
      const prewrite = async (keys: readonly string[]): Promise<number> => {
        const startTs = await tso()
        const mutations = keys.map((key) => ({ op: 'put', key, value: 'new' }))
        await post(url, '/v1/percolator/prewrite', {
          mutations,
          primary: keys[0],
          start_ts: startTs,
          lock_ttl: 600_000,
        })
        return startTs
      }
      const [undecided, committed] = [await prewrite(['a', 'b']), await prewrite(['c', 'd'])]
      const commitTs = await tso()
      await post(url, '/v1/percolator/commit', { keys: ['c'], start_ts: committed, commit_ts: commitTs })
      const async = await tso()
      await post(url, '/v1/percolator/prewrite', {
        ...{ mutations: [{ op: 'put', key: 'e', value: 'new' }], primary: 'e', secondaries: ['never'] },
        ...{ start_ts: async, lock_ttl: 600_000, use_async_commit: true },
      })
      const { page, errors } = await openConsole(url, '#/locks', PHONE)
      const entry = (startTs: number) => page.getByRole('listitem').filter({ has: page.getByTitle(String(startTs)) })
      await entry(undecided)
        .getByText(/^[5-9] min/)
        .waitFor()
      const force = async (startTs: number) => {
        await entry(startTs).getByRole('button', { name: 'Force its end' }).press('Enter')
        await page.getByRole('group', { name: `End the transaction of ${startTs}` }).waitFor()
        await page.keyboard.press('Enter')
        await entry(startTs).waitFor({ state: 'detached' })
      }
      await force(undecided)
      await page
        .getByText(`The transaction of ${undecided} was rolled back: its 2 locked keys are as they were`)
        .waitFor()
      await expect(
        post(url, '/v1/percolator/commit', { keys: ['a'], start_ts: undecided, commit_ts: await tso() }),
      ).rejects.toThrow('txn_lock_not_found')
      await force(committed)
      await page.getByText(`The transaction of ${committed} was committed at ${commitTs} already`).waitFor()
      await page.getByText('its 1 locked key was rolled forward').waitFor()
      expect(await get(url, 'd')).toBe('new')
      await force(async)
      await page.getByText(`The transaction of ${async} was rolled back`).waitFor()
      await page.getByText('Nobody holds a lock').waitFor()
      expect(errors).toEqual([])
    }))
})

describe.skipIf(!hasBrowser)('what a server is busy with', () => {
  test('the machine, slow requests with their keys, and hot keys', () =>
    withServer(
      async ({ url }) => {
        for (let i = 0; i < 2000; i += 100)
          await Promise.all(Array.from({ length: 100 }, () => fetch(`${url}/v1/kv/hot`)))
        const { page, errors } = await openConsole(url, '#/live', PHONE)
        for (const [chart, value] of [
          ['Processor', /used \d.* %/],
          ['Memory', /resident \d.* MB/],
          ['Disk', /free \d.* GB/],
        ] as const)
          await page.getByRole('region', { name: chart }).getByText(value).waitFor()
        await page.getByRole('list', { name: 'Hot keys' }).getByRole('link', { name: 'hot' }).waitFor()
        // It waits for a lock for as long as it may.
        const mutations = [{ op: 'put', key: 'slow/<b>key', value: 'x' }]
        const { ts } = await post(url, '/v1/percolator/tso', {})
        await post(url, '/v1/percolator/prewrite', {
          ...{ mutations, primary: 'slow/<b>key', start_ts: ts, lock_ttl: 600_000 },
        })
        await expect(put(url, 'slow%2F%3Cb%3Ekey?lock_wait_ms=1500', 'x')).rejects.toThrow('key_locked')
        const slow = page.getByRole('list', { name: 'Slow requests' }).getByRole('listitem')
        const refused = slow.filter({ has: page.getByText('423', { exact: true }) })
        await refused.getByText(/^\d+\.\d s$/).waitFor()
        await refused.getByText(/^locks \d+\.\d s/).waitFor()
        await refused.getByRole('link', { name: 'slow/<b>key' }).click()
        await page.getByRole('heading', { name: 'slow/<b>key' }).waitFor()
        expect(errors).toEqual([])
      },
      ['--slow-ms', '1000'],
    ))
})

describe.skipIf(!hasBrowser)('tokens', () => {
  const [ALL, EYE, ONE, TWO] = ['all', 'eye', 'one', 'two'].map((name) => `${name}-token-0123456789`)

  test('one of a prefix begins there and is told what is not for it; a read-only one has no buttons that write', () =>
    withTempDir(async (directory) => {
      const tokens = `${directory}/tokens`
      const lines = [`rw ${ALL}`, `ro ${EYE}`, `rw ${ONE} prefix=own/`, `ro ${TWO} prefix=own/ prefix=tmp/`]
      await writeFile(tokens, `${lines.join('\n')}\n`, { mode: 0o600 })
      await withServer(
        async ({ url }) => {
          const write = (method: string, path: string, body: string) =>
            fetch(url + path, {
              ...{ method, body },
              headers: { authorization: `Bearer ${ALL}`, 'content-type': 'application/json' },
            })
          await write('PUT', '/v1/kv/own%2Fkey', 'x')
          await write('PUT', '/v1/leases/own/a', '{"holder": "me", "ttl_ms": 600000}')
          await write('PUT', '/v1/leases/other', '{"holder": "me", "ttl_ms": 600000}')
          await write('PUT', '/v1/observers/theirs', '{"prefix": "other/"}')
          await write('PUT', '/v1/observers/ours', '{"prefix": "own/"}')
          await write('PUT', '/v1/consumers/ours', '{"prefix": "own/"}')
          const { page, errors } = await openConsole(url, '', PHONE)
          const use = async (token: string | undefined) => {
            const forget = page.getByRole('button', { name: 'Forget token' })
            if (await forget.isVisible()) await forget.click()
            await page.getByLabel('Token').fill(String(token))
            await page.getByRole('button', { name: 'Use' }).click()
          }
          const view = (name: string) => page.getByRole('link', { name, exact: true }).click()

          for (const hash of ['#/browse', '#/leases', '#/live', '#/observers', '#/locks', '#/key/own%2Fkey']) {
            await page.goto(`${url}/console${hash}`)
            await use('a-wrong-token-0123456789')
            await page.getByRole('heading', { name: 'Wrong token' }).waitFor()
          }

          await page.goto(`${url}/console#/browse`)
          await use(ONE)
          await page.getByRole('link', { name: 'key', exact: true }).waitFor()
          expect(page.url()).toMatch(/#\/browse\/own%2F$/)
          await view('Live')
          await page.getByText('Rates, latencies and the machine are for tokens that reach every key').waitFor()
          await page.getByText('Slow requests and hot keys are for tokens that reach every key').waitFor()
          await view('Leases')
          await page.getByRole('heading', { name: 'own/a' }).waitFor()
          expect(await page.getByRole('heading', { name: 'other' }).count()).toBe(0)
          await view('Observers')
          await page.getByRole('heading', { name: 'ours' }).first().waitFor()
          expect(await page.getByText('theirs').count()).toBe(0)
          await view('Locks')
          await page.getByText('Waits are for tokens without prefixes').waitFor()
          expect(await page.getByRole('alert').count()).toBe(0)

          await use(TWO)
          await view('Live')
          await page.getByText('Slow requests and hot keys are for tokens that reach every key').waitFor()
          await view('Browse')
          await page.getByRole('link', { name: 'tmp/' }).waitFor()
          await page.getByRole('link', { name: 'own/' }).click()
          await page.getByRole('link', { name: 'key', exact: true }).waitFor()
          await use(EYE)
          await view('Observers')
          await page.getByRole('heading', { name: 'theirs' }).waitFor()
          const acting = /^(End|Delete|Reset|Backfill|Pause|Register|Force|Resolve|Skip|Retry)/
          expect(await page.getByRole('button', { name: acting }).count()).toBe(0)
          await view('Leases')
          await page.getByRole('heading', { name: 'other' }).waitFor()
          expect(await page.getByRole('button', { name: acting }).count()).toBe(0)
          await page.getByText('read only').waitFor()
          expect(errors).toEqual([])
        },
        ['--token-file', tokens],
      )
    }))
})
