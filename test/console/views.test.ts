import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { loadavg } from 'node:os'
import type { Page } from 'playwright-core'
import { describe, expect, test } from 'vitest'
import { endBrowserAfterAll, get, hasBrowser, openConsole, post, put, send, withServer } from './browser.js'

endBrowserAfterAll()

const tso = async (url: string): Promise<number> => Number((await post(url, '/v1/percolator/tso', {}))['ts'])

/** The cells of a key's columns that are filled, as `timestamp column`. */
function columnsOf(page: Page, key: string) {
  return page.getByRole('region', { name: `Columns of ${key}` })
}

describe.skipIf(!hasBrowser)('stepping a transaction', () => {
  test('the bank: the coordinator dies between its commits, and a reader rolls the other key forward', () =>
    withServer(async ({ url }) => {
      const { page, errors } = await openConsole(url, '#/step')
      const step = (name: string) => page.getByRole('button', { name, exact: true }).click()
      await step('Load the paper’s bank')
      const [bob, joe] = [columnsOf(page, 'demo/bank/Bob'), columnsOf(page, 'demo/bank/Joe')]
      await bob.getByRole('cell', { name: '10', exact: true }).waitFor()
      await step('Begin')
      await step('Next step')
      await bob.getByText('I am primary').waitFor()
      expect(await joe.getByText('primary @').count()).toBe(0)
      await step('Next step')
      await joe.getByRole('cell', { name: 'primary @ demo/bank/Bob' }).waitFor()
      await step('Next step')
      await step('Next step')
      await bob.getByRole('row', { name: 'commit_ts' }).waitFor()
      expect(await bob.getByText('I am primary').count()).toBe(0)
      await step('Die here')
      await page.getByText('The coordinator has died after its primary was committed').waitFor()
      expect(await joe.getByText('primary @').count()).toBe(1)
      expect(await get(url, 'demo%2Fbank%2FBob')).toBe('3')

      await step('Read at a new timestamp')
      await step('Resolve the lock')
      await page.getByText('The reader rolls the key forward').waitFor()
      await joe.getByRole('row', { name: 'commit_ts' }).waitFor()
      expect(await joe.getByText('primary @').count()).toBe(0)
      const readings = page.locator('.readings')
      await readings.getByText('9', { exact: true }).waitFor()
      expect(await readings.textContent()).toContain('3')
      expect(await get(url, 'demo%2Fbank%2FJoe')).toBe('9')
      await page.getByText('check_txn_status', { exact: true }).click()
      await page.getByText('"status":"committed"').waitFor()

      // Once more, over the living locks of one that died early.
      await step('New transaction')
      for (const name of ['Begin', 'Next step', 'Next step', 'Die here', 'Load the paper’s bank']) await step(name)
      await page.locator('.steps .current', { hasText: 'Take a start_ts' }).waitFor()
      expect(await get(url, 'demo%2Fbank%2FBob')).toBe('10')
      expect(errors).toEqual([])
    }))

  test('the coordinator dies before its commit, and a reader rolls it back once its lock has expired', () =>
    withServer(async ({ url }) => {
      const { page, errors } = await openConsole(url, '#/step')
      const step = (name: string) => page.getByRole('button', { name, exact: true }).click()
      await step('Load the paper’s bank')
      // The server ends a dead transaction soon itself, and a busy machine is slow to get as far as its reader.
      await page.getByLabel('Locks live for').fill((loadavg()[0] ?? 0) > 4 ? '20000' : '2000')
      for (const name of ['Begin', 'Next step', 'Next step', 'Die here', 'Read at a new timestamp']) await step(name)
      const resolve = page.getByRole('button', { name: 'Resolve the lock' })
      await resolve.first().click()
      await page
        .getByRole('status')
        .getByText(/^The primary is/)
        .waitFor() // Alive still, or expired already.
      await expect
        .poll(
          async () => {
            await resolve
              .first()
              .click({ timeout: 2000 })
              .catch(() => {}) // The last one may be gone.
            return page.locator('.readings').textContent()
          },
          { timeout: 60_000 },
        )
        .toBe('demo/bank/Bob10demo/bank/Joe2')
      await columnsOf(page, 'demo/bank/Bob').getByText('rolled back @').waitFor()
      expect(await get(url, 'demo%2Fbank%2FJoe')).toBe('2')
      expect(errors).toEqual([])
    }))

  test('a transaction of one’s own: a conflict is told, and it is rolled back', () =>
    withServer(async ({ url }) => {
      const { page, errors } = await openConsole(url, '#/step')
      const step = (name: string) => page.getByRole('button', { name, exact: true }).click()
      await page.getByLabel('Key 1').fill('mine')
      await page.getByLabel('Value 1').fill('v')
      await step('Begin')
      await page.getByText('Prewrite primary').waitFor()
      await page.locator('li[aria-current=step]', { hasText: 'Prewrite' }).waitFor()
      await put(url, 'mine', 'newer')
      await step('Next step')
      await page.getByRole('alert').waitFor()
      await step('Roll back')
      await columnsOf(page, 'mine').getByText('rolled back @').waitFor()
      expect(await get(url, 'mine')).toBe('newer')
      expect(errors).toEqual([])
    }))

  test('by keyboard alone', () =>
    withServer(async ({ url }) => {
      const { page, errors } = await openConsole(url)
      await page.getByText('The store is empty').waitFor()
      const focused = () => page.evaluate('document.activeElement.textContent') as Promise<string>
      const tabTo = async (text: string) => {
        for (let i = 0; i < 40 && (await focused()) !== text; i++) await page.keyboard.press('Tab')
        expect(await focused()).toBe(text)
      }
      await page.keyboard.press('Tab')
      expect(await focused()).toBe('Skip to content')
      await tabTo('Step')
      await page.keyboard.press('Enter')
      await tabTo('Load the paper’s bank')
      await page.keyboard.press('Enter')
      await columnsOf(page, 'demo/bank/Bob').waitFor()
      const next = async () => {
        await expect.poll(focused).toBe('Next step') // The focus stays on the button from step to step.
        await page.keyboard.press('Enter')
      }
      await expect.poll(focused).toBe('Begin')
      await page.keyboard.press('Enter')
      for (let i = 0; i < 5; i++) {
        await page.locator('.steps .done').nth(i).waitFor()
        await next()
      }
      await page.getByText('Committed, and all locks are gone').waitFor()
      expect(await get(url, 'demo%2Fbank%2FJoe')).toBe('9')
      expect(errors).toEqual([])
    }))
})

describe.skipIf(!hasBrowser)('watching', () => {
  test('locks, who waits for whom, and an expired lock that is resolved', () =>
    withServer(async ({ url }) => {
      const [holder, waiter] = [await tso(url), await tso(url)]
      const acquire = (key: string, startTs: number) =>
        post(url, '/v1/percolator/acquire_pessimistic_lock', {
          ...{
            keys: [key],
            primary: key,
            start_ts: startTs,
            for_update_ts: startTs,
            lock_ttl: 600_000,
            wait_timeout: 600_000,
          },
        })
      await acquire('a', holder)
      const waiting = acquire('a', waiter)
      const { page, errors } = await openConsole(url, '#/locks')
      await page.getByRole('img', { name: `${waiter} waits for ${holder} at a` }).waitFor()
      const resolved = page.getByText(/^The transaction of \d+ was rolled back/)
      // The server ends an expired lock after a second or three: on a busy machine another one is needed.
      for (let i = 0; i < 10 && !(await resolved.isVisible()); i++) {
        const mutations = [{ op: 'put', key: `b${i}`, value: '1' }]
        await post(url, '/v1/percolator/prewrite', {
          ...{ mutations, primary: `b${i}`, start_ts: await tso(url), lock_ttl: 1 },
        })
        await page
          .getByRole('button', { name: 'Resolve' })
          .click({ timeout: 5000 })
          .catch(() => {})
      }
      await resolved.waitFor()
      await page.getByRole('link', { name: /^b\d$/ }).waitFor({ state: 'detached' })
      await post(url, '/v1/percolator/pessimistic_rollback', { keys: ['a'], start_ts: holder, for_update_ts: holder })
      await waiting
      await page.getByText('No transaction waits').waitFor()
      expect(errors).toEqual([])
    }))

  test('observers with their parked keys, which are retried or skipped; consumers', () =>
    withServer(async ({ url }) => {
      const register = (path: string, body: object) =>
        fetch(url + path, {
          method: 'PUT',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify(body),
        })
      await register('/v1/observers/bill', { prefix: 'order/', max_attempts: 1, backoff_ms: 10 })
      await register('/v1/consumers/copy', { prefix: 'order/' })
      for (const key of ['order%2F7', 'order%2F8']) await put(url, key, 'not an order')
      const { notifications } = (await post(url, '/v1/observers/bill/claim', { worker: 'me', limit: 2 })) as {
        notifications: { key: string; fence: number }[]
      }
      const claims = notifications.map(({ key, fence }) => ({ key, fence, error: '<b>no price</b>' }))
      await post(url, '/v1/observers/bill/release', { claims })
      const { page, errors } = await openConsole(url, '#/observers')
      await page.getByRole('link', { name: 'order/7' }).waitFor()
      await page.getByText('<b>no price</b>').first().waitFor()
      await page.getByRole('heading', { name: 'copy' }).waitFor()
      const rowOf = (name: string) => page.getByRole('listitem').filter({ has: page.getByRole('link', { name }) })
      await rowOf('order/7').getByRole('button', { name: 'Retry' }).click()
      await expect.poll(() => rowOf('order/7').count()).toBe(0)
      await rowOf('order/8').getByRole('button', { name: 'Skip' }).click()
      await rowOf('order/8').getByRole('button', { name: 'Skip order/8' }).click()
      await expect.poll(() => rowOf('order/8').count()).toBe(0)
      const state = (await (await fetch(`${url}/v1/observers/bill`)).json()) as { pending: number; parked: number }
      expect(state).toMatchObject({ pending: 1, parked: 0 })
      await page.getByRole('button', { name: 'Pause' }).click()
      await page.getByText('paused').waitFor()
      await page.getByRole('button', { name: 'Resume' }).click()
      await page.getByText('running').waitFor()
      expect(errors).toEqual([])
    }))

  test('the feed of a prefix, what holds it back, and charts', () =>
    withServer(async ({ url }) => {
      const { page, errors } = await openConsole(url, '#/feed')
      await page.getByLabel('Prefix').fill('seen/')
      await page.getByRole('button', { name: 'Follow' }).click()
      await page.getByText('everything up to').waitFor()
      await put(url, 'unseen', 'x')
      const ops = [
        { op: 'put', key: 'seen/1', value: '<i>one</i>' },
        { op: 'put', key: 'seen/2', value: 'x'.repeat(1_000_000) },
      ]
      await post(url, '/v1/txn', { ops })
      await page.getByText('<i>one</i>').waitFor()
      expect(await page.locator('.feed > li').count()).toBe(1)
      await fetch(`${url}/v1/kv/seen%2F1`, { method: 'DELETE' })
      await page.locator('.feed .op.delete').waitFor()
      const startTs = await tso(url)
      const mutations = [{ op: 'put', key: 'held', value: '1' }]
      await post(url, '/v1/percolator/prewrite', { mutations, primary: 'held', start_ts: startTs, lock_ttl: 600_000 })
      const told = page.getByRole('status').filter({ hasText: 'The feed is held back by a lock on held' })
      await told.getByTitle(String(startTs)).waitFor()
      await post(url, '/v1/percolator/rollback', { keys: ['held'], start_ts: startTs })
      await told.waitFor({ state: 'detached' })
      await page.getByRole('button', { name: 'Stop' }).click()
      await page.getByRole('link', { name: 'Live', exact: true }).click()
      await page
        .getByRole('region', { name: 'Event loop' })
        .getByText(/delay \d/)
        .waitFor()
      await page.locator('canvas').first().waitFor()
      expect(errors).toEqual([])
    }))
})

const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js')

interface Violation {
  readonly id: string
  readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[]
}

/** By the debugger's evaluation, which the page's policy does not bind. A document is given axe once: that costs as much as to run it. */
async function violationsIn(page: Page): Promise<string[]> {
  if (await page.evaluate("typeof axe === 'undefined'")) await page.evaluate(await readFile(AXE, 'utf8'))
  const violations = (await page.evaluate(
    "axe.run({ resultTypes: ['violations'], selectors: false }).then(({ violations }) => violations)",
  )) as Violation[]
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
  )
}

/** Each colour and each width; before a release each colour in each width. */
const SCREENS = [
  ['light', 1280],
  ['dark', 390],
  ...(process.env['PERKV_TEST_LONG']
    ? ([
        ['light', 390],
        ['dark', 1280],
      ] as const)
    : []),
] as const

test.skipIf(!hasBrowser)(
  'no view violates the rules of axe, or scrolls sideways, in dark and light, on a desk and on a phone; none asks elsewhere',
  () =>
    withServer(
      async ({ url }) => {
        const beforeAll = await tso(url)
        await put(url, 'config%2Fweb', '{"title":"PerKV","tags":["a","b"]}')
        await put(url, 'k', 'first')
        await put(url, 'k', 'second')
        const startTs = await tso(url)
        await post(url, '/v1/percolator/prewrite', {
          ...{ mutations: [{ op: 'put', key: 'k2', value: '1' }], primary: 'k2', start_ts: startTs, lock_ttl: 1 },
        })
        await fetch(`${url}/v1/observers/one`, {
          ...{ method: 'PUT', headers: { 'content-type': 'application/json' }, body: '{"prefix": "k"}' },
        })
        await send(url, 'PUT', '/v1/leases/up/host-a', { holder: 'host-a', ttl_ms: 600_000 })
        await send(url, 'PUT', '/v1/consumers/copy', { prefix: 'k' })
        for (const [colorScheme, width] of SCREENS) {
          const { page, errors, requested } = await openConsole(url, '', {
            colorScheme,
            viewport: { width, height: 800 },
          })
          const check = async (view: string, ready: string) => {
            await page.goto(`${url}/console#/${view}`)
            await page.locator(ready).first().waitFor()
            expect(await violationsIn(page), `${view} ${colorScheme} ${width}`).toEqual([])
            const beyond = await page.evaluate(
              'document.documentElement.scrollWidth - document.documentElement.clientWidth',
            )
            expect(beyond, `${view} ${width}`).toBe(0)
          }
          await check('browse', '.list .preview bdi')
          await page.getByLabel('Search').fill('k')
          await page.getByLabel('Search').press('Enter')
          await page.getByLabel('Select k', { exact: true }).check()
          await page.getByRole('button', { name: 'Delete', exact: true }).click()
          await check('browse', '.hits li')
          await check('key/config%2Fweb', '.json-name')
          await page.getByRole('button', { name: 'Expiry' }).click()
          await check('key/config%2Fweb', '#expiry')
          await check('key/k', '.columns td.write:not(:empty)')
          await page.getByRole('button', { name: 'Edit' }).click()
          await check('key/k', 'textarea')
          await page.getByRole('button', { name: 'Cancel' }).click()
          await page.getByRole('link', { name: 'Compare with the version before' }).click()
          await check(new URL(page.url()).hash.slice(2), '.lines ins')
          await page.getByRole('link', { name: 'Close the comparison' }).click()
          await check(`diff?from=${beforeAll}`, '.change ins')
          await page.getByRole('button', { name: 'Undo all' }).click()
          await check(`diff?from=${beforeAll}`, '.restored li')
          await page.goto(`${url}/console#/key/k`)
          await page.getByRole('slider', { name: 'Time' }).press('PageDown')
          await page.locator('.time.past').waitFor()
          await check(new URL(page.url()).hash.slice(2), '.time.past')
          await page.getByRole('button', { name: 'Back to now' }).click()
          await page.goto(`${url}/console#/step`)
          await page.getByRole('button', { name: 'Load the paper’s bank' }).click()
          for (const name of ['Begin', 'Next step', 'Next step']) await page.getByRole('button', { name }).click()
          await page.getByRole('button', { name: 'Die here' }).click()
          await page.getByRole('button', { name: 'Read at a new timestamp' }).click()
          await check('step', '.readings .badge')
          await check('locks', '.entry')
          await check('leases', '.entry')
          await page.getByRole('button', { name: 'End' }).click()
          await check('leases', '.asking')
          await check('live', '.entry')
          await check('observers', '.entry')
          await page.getByText('Register an observer').click()
          await page.getByRole('button', { name: 'Reset copy' }).click()
          await check('observers', 'form.whole')
          await check('feed', '.empty')
          expect(errors).toEqual([])
          expect(requested.length).toBeGreaterThan(10)
          expect(requested.filter((one) => !one.startsWith(`${url}/`) && one !== 'data:,')).toEqual([])
          await page.context().close()
        }
      },
      ['--slow-ms', '1'],
    ),
)
