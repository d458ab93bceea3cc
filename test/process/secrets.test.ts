import { execFile, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmod, copyFile, writeFile } from 'node:fs/promises'
import type { IncomingHttpHeaders } from 'node:http'
import { request } from 'node:https'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, describe, expect, test } from 'vitest'
import { CLI, ENV, killAll, runCli, withTempDir } from './server-process.js'

const run = promisify(execFile)
const HAS_OPENSSL = spawnSync('openssl', ['version']).status === 0
afterAll(killAll)

const OLD = 'old-token-0123456789'
const NEW = 'new-token-0123456789'
const READY = /is ready on (\S+), data/

/** A server whose log is looked at. */
async function startLogging(flags: readonly string[]) {
  const child = spawn(process.execPath, [CLI, 'serve', '--port', '0', ...flags], { env: ENV })
  let output = ''
  const waiting = new Set<() => void>()
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      output += chunk
      for (const look of waiting) look()
    })
  const said = (what: RegExp, times = 1) =>
    new Promise<string>((resolve, reject) => {
      const look = () => {
        if ((output.match(new RegExp(what, 'g')) ?? []).length < times) return
        waiting.delete(look)
        resolve(output)
      }
      waiting.add(look)
      child.once('exit', () => reject(new Error(`it ended before it said ${what}: ${output}`)))
      look()
    })
  const url = READY.exec(await said(READY))?.[1] ?? ''
  const stop = async () => {
    child.kill('SIGTERM')
    await once(child, 'close')
    return output
  }
  return { url, said, stop, reload: () => child.kill('SIGHUP') }
}

const as = (token: string) => ({ headers: { authorization: `Bearer ${token}` } })

describe('who may come in', () => {
  const refused: [string[], RegExp][] = [
    [['--host', '0.0.0.0'], /--host 0\.0\.0\.0 lets others in: give --token-file, or --insecure/],
    [['--host', '::'], /--token-file, or --insecure/],
    [['--host', '10.1.2.3'], /--token-file, or --insecure/],
    [['--host', '127.0.0.1.example.com'], /--token-file, or --insecure/],
    [['--token-file', ''], /--token-file is empty/],
    [['--tls-cert-file', 'x'], /go together/],
    [['--tls-key-file', 'x'], /go together/],
  ]
  test('a network without tokens, and half of a certificate, are used wrongly', async () => {
    for (const [flags, message] of refused) {
      const finished = await runCli(['serve', '--port', '0', '--data', '/dev/null/db', ...flags])
      expect([finished.code, finished.stdout]).toEqual([2, ''])
      expect(finished.stderr).toMatch(message)
      expect(finished.stderr.trimEnd().split('\n')).toHaveLength(1)
    }
  })

  test('a token file that means nothing, or is not there, is one line that does not say what it holds', () =>
    withTempDir(async (directory) => {
      const file = join(directory, 'tokens')
      const serve = () => runCli(['serve', '--port', '0', '--data', join(directory, 'db'), '--token-file', file])
      expect(await serve()).toMatchObject({ code: 1, stderr: expect.stringMatching(/^perkv: .*tokens.*ENOENT.*\n$/) })
      await writeFile(file, `rw ${OLD} prefx=a`, { mode: 0o600 })
      const { code, stderr } = await serve()
      expect(code).toBe(1)
      expect(stderr).toMatch(/^perkv: .*tokens cannot be used: line 1: .*\n$/)
      expect(stderr).not.toContain(OLD)
    }))
})

test('tokens are read again at SIGHUP; a file that means nothing changes nothing; none is ever logged', () =>
  withTempDir(async (directory) => {
    const file = join(directory, 'tokens')
    await writeFile(file, `rw ${OLD}\n`, { mode: 0o600 })
    const flags = ['--data', join(directory, 'db'), '--token-file', file, '--log-level', 'trace']
    const server = await startLogging(flags)
    const status = async (token: string) => (await fetch(`${server.url}/v1/status`, as(token))).status
    expect([await status(OLD), await status(NEW)]).toEqual([200, 401])

    await writeFile(file, `rw ${NEW}\n`)
    await chmod(file, 0o644)
    server.reload()
    await server.said(/tokens are read again/)
    expect([await status(OLD), await status(NEW)]).toEqual([401, 200])

    await writeFile(file, 'rw short')
    server.reload()
    await server.said(
      /tokens stay as they were: \S*tokens cannot be used: line 1: a token has 16 to 512 characters"\}\n/,
    )
    expect([await status(OLD), await status(NEW)]).toEqual([401, 200])

    const { headers } = as(NEW)
    await fetch(`${server.url}/v1/kv/a`, { method: 'PUT', headers, body: 'a value that is secret' })
    await fetch(`${server.url}/v1/txn`, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: '{',
    })
    await fetch(`${server.url}/v1/kv/a?nope=${'x'.repeat(99)}`, { headers })
    const log = await server.stop()
    expect(log).toMatch(/every user of this machine may read/)
    expect(log).toMatch(/incoming request/)
    expect(log).not.toMatch(/"stack"|"frames"|\.js:\d/)
    expect(log).not.toMatch(/(old|new)-token|a value that is secret|[Bb]earer [^T]/)
  }))

test('a token that expires is refused from then on, and a stream that it has opened ends', { tags: ['long'] }, () =>
  withTempDir(async (directory) => {
    const file = join(directory, 'tokens')
    const write = (expiresAt: string) => {
      const lines = [`rw ${OLD} name=app expires=${expiresAt}`, `rw ${NEW}`, `ro ${OLD}${OLD} expires=2020-02-29`]
      return writeFile(file, lines.join('\n'), { mode: 0o600 })
    }
    const expiresAt = new Date(Date.now() + 3_600_000).toISOString()
    await write(expiresAt)
    const server = await startLogging(['--data', join(directory, 'db'), '--token-file', file])
    await server.said(/no longer accepted, because they have expired: the tokens of line 3"/)
    const status = (token: string) => fetch(`${server.url}/v1/status`, as(token))
    expect(await (await status(OLD)).json()).toMatchObject({ access: { may_write: true, expires_at: expiresAt } })
    expect((await status(OLD + OLD)).status).toBe(401)
    const stream = await fetch(`${server.url}/v1/changes`, {
      headers: { ...as(OLD).headers, accept: 'application/x-ndjson' },
    })
    expect(stream.status).toBe(200)
    await write(new Date(Date.now() + 1000).toISOString())
    server.reload()
    expect(await stream.text()).toContain('unauthorized')
    await server.said(/no longer accepted, because they have expired: the tokens of line 1 \(app\)"/)
    expect([(await status(OLD)).status, (await status(NEW)).status]).toEqual([401, 200])
    await server.stop()
  }),
)

describe('TLS', () => {
  async function certify(directory: string, name: string): Promise<void> {
    const out = ['-keyout', join(directory, `${name}.key`), '-out', join(directory, `${name}.crt`)]
    const subject = ['-subj', `/CN=${name}`, '-addext', 'subjectAltName=IP:127.0.0.1']
    const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '1']
    await run('openssl', ['req', '-x509', ...kind, ...subject, ...out])
  }

  /** By a connection of its own. */
  function get(url: string, maxVersion?: 'TLSv1.1'): Promise<{ issuer: string; headers: IncomingHttpHeaders }> {
    return new Promise((resolve, reject) => {
      const options = {
        rejectUnauthorized: false,
        agent: false,
        ...(maxVersion && { maxVersion, minVersion: maxVersion }),
      }
      const sent = request(`${url}/readyz`, { ...options, ciphers: 'DEFAULT@SECLEVEL=0' }, (answer) => {
        const socket = answer.socket as unknown as { getPeerCertificate(): { subject: { CN: string } } }
        const issuer = socket.getPeerCertificate().subject.CN
        answer.resume().once('end', () => resolve({ issuer, headers: answer.headers }))
      })
      sent.once('error', reject).end()
    })
  }

  test.skipIf(!HAS_OPENSSL)('is spoken, and certificates are read again at SIGHUP (needs openssl)', () =>
    withTempDir(async (directory) => {
      await Promise.all(['one', 'two'].map((name) => certify(directory, name)))
      const use = (certificate: string, key: string) =>
        Promise.all([
          copyFile(join(directory, `${certificate}.crt`), join(directory, 'crt')),
          copyFile(join(directory, `${key}.key`), join(directory, 'key')),
        ])
      await use('one', 'two')
      const flags = ['--data', join(directory, 'db'), '--log-level', 'info']
      const tls = ['--tls-cert-file', join(directory, 'crt'), '--tls-key-file', join(directory, 'key')]
      const mismatched = await runCli(['serve', '--port', '0', ...flags, ...tls])
      expect(mismatched).toMatchObject({ code: 1, stderr: expect.stringMatching(/^perkv: .*cannot be used: .*\n$/) })

      await use('one', 'one')
      const server = await startLogging([...flags, ...tls])
      expect(server.url).toMatch(/^https:/)
      expect((await get(server.url)).issuer).toBe('one')
      await expect(get(server.url, 'TLSv1.1')).rejects.toThrow()
      await expect(fetch(server.url.replace('https', 'http'))).rejects.toThrow() // It does not bring it down either.

      await use('two', 'two')
      server.reload()
      await server.said(/certificates are read again/)
      expect((await get(server.url)).issuer).toBe('two')
      await expect(get(server.url, 'TLSv1.1')).rejects.toThrow()

      await use('one', 'two')
      server.reload()
      await server.said(/certificates stay as they were/)
      expect((await get(server.url)).issuer).toBe('two')
      await server.stop()
    }),
  )
})
