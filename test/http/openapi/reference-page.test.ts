import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { OPERATIONS } from '../../../src/http/openapi/operations/all.js'
import { skipOthers } from '../../store/test-store.js'
import { testServers } from '../support.js'

const start = testServers()

test('the page has every call, and needs nothing but itself', { tags: ['long'] }, async () => {
  skipOthers('offers every route')
  const { headers, body } = await (await start()).get('/docs')
  expect(headers['content-type']).toBe('text/html; charset=utf-8')
  for (const { id } of Object.values(OPERATIONS)) expect(body).toContain(`id="${id}"`)
  const ids = [...body.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id)
  expect(new Set(ids).size).toBe(ids.length)
  const links = [...body.matchAll(/ (?:href|src)="([^"]+)"/g)].map(([, link = '']) => link)
  expect(links.filter((link) => !link.startsWith('#')).sort()).toEqual(['data:,', 'openapi.json'])
  expect(links.filter((link) => link.startsWith('#') && !ids.includes(link.slice(1)))).toEqual([])
})

test('its policy permits its own style and script only', async () => {
  const { headers, body } = await (await start()).get('/docs')
  const hashOf = (element: string): string => {
    const [, text = ''] = new RegExp(`<${element}>(.*?)</${element}>`, 's').exec(body) ?? []
    expect(text).not.toBe('')
    return `'sha256-${createHash('sha256').update(text).digest('base64')}'`
  }
  expect(headers['content-security-policy']).toBe(
    `default-src 'none'; style-src ${hashOf('style')}; script-src ${hashOf('script')}; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
  )
  expect(body).not.toMatch(/ (?:style|on\w+)="/)
})
