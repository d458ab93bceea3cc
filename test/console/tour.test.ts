import { mkdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { endBrowserAfterAll, hasBrowser, openConsole, post, put, send, withServer } from './browser.js'

/** The pictures of docs/console.md: a walk through the views of one store. With PERKV_DOCS_WRITE=1 they are taken anew. */
const PICTURES = fileURLToPath(new URL('../../docs/console/', import.meta.url))
const IS_TAKEN = process.env['PERKV_DOCS_WRITE'] !== undefined

endBrowserAfterAll()

/** @returns a timestamp of before some of the changes. */
async function fill(url: string): Promise<number> {
  const order = (customer: string, fruit: string, state: string) =>
    JSON.stringify({ customer, items: [{ fruit, kg: 2 }], state })
  await put(url, 'order%2F1001', order('ann', 'apples', 'paid'))
  await put(url, 'order%2F1002', order('ben', 'pears', 'open'))
  await put(url, 'order%2F1003', order('ann', 'plums', 'open'))
  await put(url, 'config%2Fweb', '{"title":"Fruits","sale":false,"delivery":["van"]}')
  await put(url, 'config%2Fweb', '{"title":"Fruits","sale":true,"delivery":["van"]}')
  const { ts } = await post(url, '/v1/percolator/tso', {})
  await put(url, 'config%2Fweb', '{"title":"Fruits & more","sale":true,"delivery":["van","bicycle"]}')
  await put(url, 'session%2F9f2c?ttl_ms=1800000', 'ann')
  await put(url, 'session%2Fb07d?ttl_ms=600000', 'ben')
  await put(url, 'stock%2Fapples', '120')
  await put(url, 'stock%2Fpears', '80')
  await send(url, 'PUT', '/v1/observers/bill', { prefix: 'order/', max_attempts: 1, backfill: true })
  await send(url, 'PUT', '/v1/consumers/warehouse', { prefix: 'order/' })
  await send(url, 'PUT', '/v1/leases/leader', { holder: 'host-a', ttl_ms: 600_000 })
  await send(url, 'PUT', '/v1/leases/printer', { holder: 'host-b', ttl_ms: 600_000 })
  return Number(ts)
}

async function lock(url: string, keys: readonly string[]): Promise<void> {
  const { ts } = await post(url, '/v1/percolator/tso', {})
  const mutations = keys.map((key) => ({ op: 'put', key, value: 'x' }))
  await post(url, '/v1/percolator/prewrite', { mutations, primary: keys[0], start_ts: ts, lock_ttl: 600_000 })
}

/** A second of requests, for the charts. */
async function read(url: string): Promise<void> {
  const endMs = performance.now() + 1000
  while (performance.now() < endMs) {
    await Promise.all(Array.from({ length: 8 }, () => fetch(`${url}/v1/kv/stock%2Fapples`).then((it) => it.text())))
    await put(url, 'stock%2Fpears', `${Math.round(100 * Math.random())}`)
  }
}

test.skipIf(!hasBrowser)('a tour of the views', { tags: ['long'] }, () =>
  withServer(async ({ url }) => {
    const from = await fill(url)
    const { page, errors } = await openConsole(url, '', { viewport: { width: 1100, height: 640 } })
    const picture = async (name: string, hash: string, ready: () => Promise<unknown>): Promise<void> => {
      if (hash !== '') await page.goto(`${url}/console#/${hash}`)
      await ready()
      mkdirSync(PICTURES, { recursive: true })
      if (IS_TAKEN) await page.screenshot({ path: `${PICTURES}${name}.png`, animations: 'disabled' })
    }
    const press = (name: string) => page.getByRole('button', { name, exact: true }).first().click()

    await picture('browse', 'browse', () => page.getByRole('link', { name: 'order/' }).waitFor())
    await picture('key', 'key/config%2Fweb', () => page.locator('.columns td.write:not(:empty)').first().waitFor())

    await picture('diff', `diff/?from=${from}`, () => page.getByText('Fruits & more').first().waitFor())

    await page.goto(`${url}/console#/step`)
    await press('Load the paper’s bank')
    for (const name of [
      'Begin',
      'Next step',
      'Next step',
      'Next step',
      'Next step',
      'Die here',
      'Read at a new timestamp',
    ])
      await press(name)
    await picture('step', '', () => page.locator('.readings .badge').first().waitFor())

    await lock(url, ['order/1003', 'stock/plums'])
    await picture('locks', 'locks', () => page.locator('.entry').first().waitFor())
    await picture('leases', 'leases', () => page.getByText('host-b').waitFor())
    await picture('observers', 'observers', () => page.getByText('warehouse').first().waitFor())
    await picture('live', 'live', async () => {
      await page.locator('canvas').first().waitFor()
      for (let reading = 0; IS_TAKEN && reading < 12; reading++) await read(url)
    })

    const phone = { viewport: { width: 390, height: 800 }, colorScheme: 'dark' } as const
    const onPhone = await openConsole(url, '#/key/config%2Fweb', phone)
    await onPhone.page.locator('.columns td.write:not(:empty)').first().waitFor()
    if (IS_TAKEN) await onPhone.page.screenshot({ path: `${PICTURES}phone.png` })
    expect([...errors, ...onPhone.errors]).toEqual([])
  }),
)
