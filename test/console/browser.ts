import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { afterAll } from 'vitest'
import { CHROMIUM, CHROMIUM_FLAGS, hasChromium } from '../process/chromium.js'
import { killAll, type ServerProcess, startProcess, withTempDir } from '../process/server-process.js'

export const hasBrowser = hasChromium('/console')

let browser: Promise<Browser> | undefined

/** For each file of tests. */
export function endBrowserAfterAll(): void {
  afterAll(async () => {
    await (await browser)?.close()
    browser = undefined
    killAll()
  })
}

/** A page of the console in a browser of its own data, and what went wrong in it. */
export interface OpenPage {
  readonly page: Page
  /** Uncaught errors, and messages of the console that are errors: violations of the policy among them. */
  readonly errors: readonly string[]
  /** URLs of all requests. */
  readonly requested: readonly string[]
}

export async function openConsole(url: string, hash = '', options: BrowserContextOptions = {}): Promise<OpenPage> {
  browser ??= chromium.launch({ executablePath: CHROMIUM, args: CHROMIUM_FLAGS })
  const context = await (await browser).newContext(options)
  const page = await context.newPage()
  page.setDefaultTimeout(45_000) // A busy machine is slow.
  const errors: string[] = []
  const requested: string[] = []
  page.on('pageerror', (error) => errors.push(error.message))
  // A refused request is one too; the tests of refusals expect it.
  page.on('console', (message) => {
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) errors.push(message.text())
  })
  page.on('dialog', (dialog) => {
    errors.push(`dialog: ${dialog.message()}`)
    void dialog.dismiss()
  })
  page.on('request', (request) => requested.push(request.url()))
  await page.goto(`${url}/console${hash}`)
  return { page, errors, requested }
}

export function withServer<T>(body: (server: ServerProcess) => Promise<T>, flags: readonly string[] = []): Promise<T> {
  return withTempDir(async (data) => {
    const server = await startProcess(data, flags)
    try {
      return await body(server)
    } finally {
      await server.stop('SIGKILL')
    }
  })
}

/** @param key percent-encoded. */
export async function put(url: string, key: string, value: string | Uint8Array): Promise<void> {
  const response = await fetch(`${url}/v1/kv/${key}`, { method: 'PUT', body: value })
  if (!response.ok) throw new Error(await response.text())
}

export async function get(url: string, key: string): Promise<string | undefined> {
  const response = await fetch(`${url}/v1/kv/${key}`)
  const text = await response.text()
  return response.ok ? text : undefined
}

export function post(url: string, path: string, body: unknown): Promise<Record<string, unknown>> {
  return send(url, 'POST', path, body)
}

export async function send(url: string, method: string, path: string, body: unknown): Promise<Record<string, unknown>> {
  const init = { method, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }
  const response = await fetch(`${url}${path}`, init)
  const answer = (await response.json()) as Record<string, unknown>
  if (!response.ok) throw new Error(JSON.stringify(answer))
  return answer
}
