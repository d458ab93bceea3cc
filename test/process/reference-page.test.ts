import { createRequire } from 'node:module'
import { type Browser, chromium, type Page } from 'playwright-core'
import { afterAll, expect, test } from 'vitest'
import { CHROMIUM, CHROMIUM_FLAGS, hasChromium } from './chromium.js'
import { killAll, startProcess, withTempDir } from './server-process.js'

const isThere = hasChromium('/docs')
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js')

let browser: Browser | undefined
afterAll(async () => {
  await browser?.close()
  killAll()
})

interface Axe {
  run(
    options: object,
  ): Promise<{ readonly violations: readonly { readonly id: string; readonly nodes: readonly unknown[] }[] }>
}

const VIEWS = [
  { colorScheme: 'light', viewport: { width: 1280, height: 900 } },
  { colorScheme: 'dark', viewport: { width: 390, height: 844 } },
] as const

test.skipIf(!isThere)('/docs in a browser: links, filter and keys, in both colours, wide and narrow', () =>
  withTempDir(async (directory) => {
    const server = await startProcess(directory)
    browser = await chromium.launch({ executablePath: CHROMIUM, args: CHROMIUM_FLAGS })
    for (const view of VIEWS) {
      const page = await (await browser.newContext({ ...view, bypassCSP: false })).newPage()
      const faults: string[] = []
      page.on('console', (message) => faults.push(message.text()))
      page.on('pageerror', (error) => faults.push(error.message))
      page.on('request', (request) => request.url() === `${server.url}/docs` || faults.push(request.url()))
      await page.goto(`${server.url}/docs#putKey`)
      const openCalls = (): Promise<string[]> =>
        page.locator('.call[open]').evaluateAll((all) => all.map(({ id }) => id))
      await expect.poll(openCalls).toEqual(['putKey'])
      await filterBy(page, 'consumers ack')
      expect(await page.locator('main .call:visible').evaluateAll((all) => all.map(({ id }) => id))).toEqual([
        'acknowledgeChanges',
      ])
      await page.keyboard.press('Enter')
      await expect.poll(openCalls).toEqual(['putKey', 'acknowledgeChanges']) // By the event of the new fragment.
      await filterBy(page, 'no such call')
      expect(await page.getByRole('status').textContent()).toBe('No call matches.')
      await page.keyboard.press('Escape')
      expect(await page.locator('main .call:visible').count()).toBeGreaterThan(60)
      expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBe(0)
      expect(faults).toEqual([])
    }
  }),
)

async function filterBy(page: Page, words: string): Promise<void> {
  await page.keyboard.press('/')
  await page.keyboard.press('ControlOrMeta+a')
  await page.keyboard.type(words)
}

test.skipIf(!isThere)('/docs has no fault of accessibility that axe finds', () =>
  withTempDir(async (directory) => {
    const server = await startProcess(directory)
    browser ??= await chromium.launch({ executablePath: CHROMIUM, args: CHROMIUM_FLAGS })
    for (const view of VIEWS) {
      // The policy of the page would refuse axe's script.
      const page = await (await browser.newContext({ ...view, bypassCSP: true })).newPage()
      await page.goto(`${server.url}/docs#percolatorPrewrite`)
      await page.addScriptTag({ path: AXE })
      const faultsBy = (options: object) =>
        page.evaluate(async (given) => (await (globalThis as unknown as { axe: Axe }).axe.run(given)).violations, {
          resultTypes: ['violations'],
          selectors: false,
          ...options,
        })
      // Contrast takes four times as long as all else, each call has the same styles, and the markup is the same in both views.
      const whole = view === VIEWS[0] ? await faultsBy({ rules: { 'color-contrast': { enabled: false } } }) : []
      const left = await page.locator('main .call').evaluateAll((all) => {
        const kept = all.filter((call, i) => i % 10 === 0 || call.hasAttribute('open'))
        for (const call of all) if (!kept.includes(call)) call.remove()
        return kept.length
      })
      expect(left).toBeGreaterThan(6)
      const violations = [...whole, ...(await faultsBy({}))]
      expect(violations.map(({ id, nodes }) => `${id}: ${JSON.stringify(nodes).slice(0, 300)}`)).toEqual([])
    }
  }),
)
