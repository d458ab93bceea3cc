import { readFile, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { type Browser, chromium } from 'playwright-core'
import { afterAll, expect, test } from 'vitest'
import { CHROMIUM, CHROMIUM_FLAGS, hasChromium } from './chromium.js'
import { killAll, startProcess, withTempDir } from './server-process.js'

const isThere = hasChromium('/docs')
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js')
/** The viewer's own: it names the examples of all answers alike. */
const FAULTS_OF_VIEWER = ['landmark-unique']
const TOKEN = 'a-token-of-a-writer'

let browser: Browser | undefined
afterAll(async () => {
  await browser?.close()
  killAll()
})

const VIEWS = [
  { colorScheme: 'light', viewport: { width: 1280, height: 900 } },
  { colorScheme: 'dark', viewport: { width: 390, height: 844 } },
] as const

/** All that the page loads before its reader sends something. */
const PARTS = ['/docs', '/docs/style.css', '/docs/viewer.js', '/docs/page.js', '/openapi.json']

interface Axe {
  run(
    options: object,
  ): Promise<{ readonly violations: readonly { readonly id: string; readonly nodes: readonly unknown[] }[] }>
}

test.skipIf(!isThere).each(VIEWS)('/docs in a browser, $colorScheme: links, search, samples and calls', (view) =>
  withTempDir(async (directory) => {
    const tokens = join(directory, 'tokens')
    await writeFile(tokens, `rw ${TOKEN}`)
    const server = await startProcess(join(directory, 'data'), ['--token-file', tokens])
    browser ??= await chromium.launch({ executablePath: CHROMIUM, args: CHROMIUM_FLAGS })
    const page = await (await browser.newContext(view)).newPage()
    const faults: string[] = []
    page.on('console', (message) => message.type() === 'info' || faults.push(message.text()))
    page.on('pageerror', (error) => faults.push(error.message))
    const asked: string[] = []
    page.on('request', (request) => request.url().startsWith('data:') || asked.push(request.url()))

    await page.goto(`${server.url}/docs#putKey`)
    const send = (call: string) => page.getByRole('button', { name: `Test Request (${call})` })
    await send('put /v1/kv/{key}').waitFor()
    expect(asked).toEqual(PARTS.map((path) => `${server.url}${path}`))
    expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBe(0)
    const links = await page
      .locator('a[href]:visible')
      .evaluateAll((all) => all.map((link) => String(Reflect.get(link, 'href'))))
    expect(links.filter((link) => !link.startsWith(server.url))).toEqual([])
    expect(links).toContain(`${server.url}/console`)

    await page.evaluate(await readFile(AXE, 'utf8'))
    const violations = await page.evaluate(
      async () => (await (globalThis as unknown as { axe: Axe }).axe.run({ resultTypes: ['violations'] })).violations,
    )
    const found = violations.filter(({ id }) => !FAULTS_OF_VIEWER.includes(id))
    expect(found.map(({ id, nodes }) => `${id}: ${JSON.stringify(nodes).slice(0, 300)}`)).toEqual([])

    await page.keyboard.press('ControlOrMeta+k')
    await page.getByRole('combobox').fill('move a position')
    await page.getByRole('option', { name: /Move a position forward/ }).waitFor()
    await page.keyboard.press('ArrowDown')
    await page.keyboard.press('Enter')
    await send('post /v1/consumers/{name}/ack').waitFor()

    await page.goto(`${server.url}/docs?#putKey`)
    await send('put /v1/kv/{key}').click()
    const call = page.getByRole('dialog')
    await call.getByRole('textbox', { name: 'Bearer Token' }).fill(TOKEN)
    await call.getByRole('combobox', { name: 'Value' }).first().fill('fruit/pear')
    await call.getByRole('button', { name: /^Send put/ }).click()
    await expect.poll(() => call.textContent()).toContain('commit_ts')
    const stored = await fetch(`${server.url}/v1/kv/fruit%2Fpear`, { headers: { authorization: `Bearer ${TOKEN}` } })
    expect(await stored.text()).toBe('red')
    expect(faults).toEqual([])
  }),
)
