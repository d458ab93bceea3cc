import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { decodeBackup } from '../../src/backup/backup-decoder.js'
import { BackupEncoder } from '../../src/backup/backup-encoder.js'
import { BACKUP_MAGIC } from '../../src/backup/backup-format.js'
import { RunningSums } from '../../src/backup/running-sums.js'
import { headerOf, writeIncrement } from '../../src/commands/increment.js'
import { Progress } from '../../src/commands/progress.js'
import { RemoteServer } from '../../src/commands/remote-server.js'
import { killAll, runCli, type ServerProcess, startProcess, withTempDir } from './server-process.js'

afterAll(killAll)

async function call({ url }: ServerProcess, path: string, body: object, method = 'POST'): Promise<void> {
  const headers = { 'content-type': 'application/json' }
  const response = await fetch(`${url}${path}`, { method, body: JSON.stringify(body), headers })
  expect([response.status, await response.text()]).toEqual([200, expect.any(String)])
}

async function write(server: ServerProcess, values: Readonly<Record<string, string | null>>): Promise<void> {
  const ops = Object.entries(values).map(([key, value]) =>
    value === null ? { op: 'delete', key } : { op: 'put', key, value },
  )
  await call(server, '/v1/txn', { ops })
}

interface Expiring {
  readonly value: string
  readonly expire_ts?: number
  readonly ttl_ms?: number
}

async function writeExpiring(server: ServerProcess, values: Readonly<Record<string, Expiring>>): Promise<void> {
  const ops = Object.entries(values).map(([key, put]) => ({ op: 'put', key, ...put }))
  await call(server, '/v1/txn', { ops })
}

/** Waits until the key is absent. */
async function expired({ url }: ServerProcess, key: string): Promise<void> {
  for (;;) {
    const found = await fetch(`${url}/v1/kv/${key}`)
    if (found.status === 404) return
    const etag = found.headers.get('etag') ?? ''
    await fetch(`${url}/v1/kv/${key}?wait_ms=20000`, { headers: { 'if-none-match': etag } })
  }
}

async function pairs({ url }: ServerProcess): Promise<string> {
  return (await fetch(`${url}/v1/kv`, { headers: { accept: 'application/x-ndjson' } })).text()
}

async function perkv(server: ServerProcess, ...args: readonly string[]): Promise<string> {
  const { code, stderr } = await runCli([...args, '--server', server.url])
  expect([code, stderr]).toEqual([0, stderr])
  return stderr
}

async function refused(server: ServerProcess, ...args: readonly string[]): Promise<string> {
  const { code, stderr } = await runCli([...args, '--server', server.url, '--quiet'])
  expect([code, stderr.trimEnd().split('\n').length]).toEqual([1, 1])
  return stderr
}

test('a full backup and two increments make the server as it was; what does not fit is refused', () =>
  withTempDir(async (directory) => {
    const [full, one, two] = ['full', 'one', 'two'].map((name) => join(directory, name)) as [string, string, string]
    const server = await startProcess(join(directory, 'from'))
    await write(server, { a: 'first', b: 'goes', c: 'stays', 'x/1': 'dropped', 'x/2': 'dropped' })
    await perkv(server, 'backup', '--consumer', 'nightly', full)

    await write(server, { a: 'second', b: null, d: 'x'.repeat(300_000) })
    await call(server, '/v1/percolator/delete_range', { start: 'x/', end: 'x0' })
    await write(server, { 'x/2': 'again' })
    await call(server, '/v1/txn', {
      ops: [{ op: 'put', key: { base64: 'AP/+' }, value: { base64: '/wA=' } }],
    })
    // What a consumer holds back stays over a collection.
    await call(server, '/v1/admin/gc', {})
    const told = await perkv(server, 'backup', '--since', full, '--consumer', 'nightly', one)
    expect(told).toMatch(/^perkv backup: 5 changes, 0\.3 MB in [\d.]+ s .*, ts \d+ to \d+\n$/)
    expect(await perkv(server, 'backup', '--since', one, '--consumer', 'nightly', join(directory, 'none'))).toMatch(
      /0 changes/,
    )
    await write(server, { a: 'third', e: 'new' })
    const atEnd = await pairs(server)
    await perkv(server, 'backup', '--since', one, two)

    const kept = await readFile(one)
    const onto = await runCli(['backup', '--since', one, `${directory}/./one`, '--server', server.url])
    expect([onto.code, onto.stderr]).toEqual([2, expect.stringMatching(/must not replace its own base/)])
    expect(await readFile(one)).toEqual(kept)

    const to = await startProcess(join(directory, 'to'))
    expect(await refused(to, 'restore', one)).toMatch(/this is an increment: the full backup .* must come first/)
    expect(await refused(to, 'restore', full, two)).toMatch(/this increment goes on from a backup of ts/)
    expect(await refused(to, 'restore', full, full)).toMatch(/this is a full backup/)
    const increment = await fetch(`${to.url}/v1/admin/restore`, {
      method: 'POST',
      body: await readFile(one),
      headers: { 'content-type': 'application/octet-stream' },
    })
    expect([increment.status, await increment.text()]).toEqual([400, expect.stringMatching(/this is an increment/)])
    await perkv(to, 'restore', full, one, two)
    expect(await pairs(to)).toBe(atEnd)

    // The restored server has timestamps of its own.
    expect(await refused(to, 'backup', '--since', two, join(directory, 'other'))).toMatch(
      /the base is of another server/,
    )
    const old = join(directory, 'old')
    await writeFile(old, await withoutStore(full))
    expect(await refused(server, 'backup', '--since', old, join(directory, 'other'))).toMatch(
      /make a full backup first/,
    )
    // Percolator's gc asks nobody.
    const { ts } = (await (
      await fetch(`${server.url}/v1/percolator/tso`, {
        method: 'POST',
        body: '{}',
        headers: { 'content-type': 'application/json' },
      })
    ).json()) as { ts: number }
    await write(server, { a: 'fourth' })
    await call(server, '/v1/percolator/gc', { safe_point: ts })
    expect(await refused(server, 'backup', '--since', two, join(directory, 'other'))).toMatch(
      /collected changes since ts \d+: make a full backup/,
    )
    for (const each of [server, to]) await each.stop('SIGKILL')
  }))

test('an increment is refused when a delete_range comes while it reads the changes', { tags: ['long'] }, () =>
  withTempDir(async (directory) => {
    const [full, one] = [join(directory, 'full'), join(directory, 'one')]
    const server = await startProcess(join(directory, 'from'))
    await write(server, { a: '1' })
    await perkv(server, 'backup', full)
    await write(server, { 'x/1': 'taken' })
    /** Has a delete_range come just before the first page. */
    class Interfering extends RemoteServer {
      override async send(...[method, path, sent]: Parameters<RemoteServer['send']>) {
        if (path.startsWith(`/v1/changes?since_ts=${base.ts}&`))
          await call(server, '/v1/percolator/delete_range', { start: 'x/', end: 'x0' })
        return super.send(method, path, sent)
      }
    }
    const base = await headerOf(full)
    const remote = new Interfering(new URL(server.url), undefined, undefined)
    const nowhere = { async write() {}, async finish() {}, async close() {} }
    const progress = new Progress('backup', 'change', { isQuiet: true })
    await expect(
      writeIncrement(remote, nowhere, progress, { base, consumer: undefined, directory: join(directory, 'runs') }),
    ).rejects.toThrow(/a delete_range came in between: repeat the command/)
    remote.close()
    await perkv(server, 'backup', '--since', full, one)
    await server.stop('SIGKILL')
  }),
)

test('versions keep their expiries, and what has expired since the base is gone', () =>
  withTempDir(async (directory) => {
    const [full, one] = [join(directory, 'full'), join(directory, 'one')]
    const far = Date.UTC(2100) * 2048
    const server = await startProcess(join(directory, 'from'))
    await write(server, { hidden: 'was there', renewed: 'was there' })
    await writeExpiring(server, {
      kept: { value: 'long', expire_ts: far },
      lifted: { value: 'soon', ttl_ms: 4000 },
      passing: { value: 'soon', ttl_ms: 4000 },
    })
    await perkv(server, 'backup', full)
    await write(server, { lifted: 'for ever' })
    await writeExpiring(server, {
      hidden: { value: 'never seen', expire_ts: 5 },
      renewed: { value: 'again', expire_ts: far + 1 },
    })
    await expired(server, 'passing')
    // The keys that were written: an expiry is no write.
    expect(await perkv(server, 'backup', '--since', full, one)).toMatch(/^perkv backup: 3 changes, /)

    const to = await startProcess(join(directory, 'to'))
    await perkv(to, 'restore', full, one)
    const found = await pairs(to)
    expect(found).toBe(await pairs(server))
    expect(
      found
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toMatchObject([
      { key: 'kept', value: 'long', expire_ts: far },
      { key: 'lifted', value: 'for ever' },
      { key: 'renewed', value: 'again', expire_ts: far + 1 },
    ])
    for (const each of [server, to]) expect((await each.stop('SIGTERM')).code).toBe(0)
    const { code, stdout } = await runCli(['check', '--data', join(directory, 'to')])
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^expiry +2 records, /m)])
  }))

test('the state of a moment between two backups', { tags: ['long'] }, () =>
  withTempDir(async (directory) => {
    const [full, one, two] = ['full', 'one', 'two'].map((name) => join(directory, name)) as [string, string, string]
    const server = await startProcess(join(directory, 'from'))
    /** When the state was, and the state. The next write is in a later millisecond. */
    const moment = async () => {
      const pairsThen = await pairs(server)
      const at = Date.now() + 1 // Of the one clock that they share: the server's timestamps are at most its milliseconds.
      while (Date.now() <= at + 1) await new Promise(setImmediate)
      return { at: new Date(at).toISOString(), pairsThen }
    }
    await write(server, { a: '1', b: 'goes', 'x/1': 'dropped' })
    const before = await moment()
    await perkv(server, 'backup', full)
    await write(server, { a: '2', c: 'new' })
    const first = await moment()
    await write(server, { a: '3', b: null })
    const second = await moment()
    await perkv(server, 'backup', '--since', full, one)
    await write(server, { a: '4' })
    await write(server, { 'x/1': 'again' })
    const third = await moment()
    await call(server, '/v1/percolator/delete_range', { start: 'x/', end: 'x0' })
    await write(server, { a: '5' })
    const fourth = await moment()
    await perkv(server, 'backup', '--since', one, two)

    for (const [i, { at, pairsThen }] of [first, second, fourth].entries()) {
      const to = await startProcess(join(directory, `to ${i}`))
      expect(await perkv(to, 'restore', '--at', at, full, one, two)).toContain(`as of ${at}`)
      expect(await pairs(to)).toBe(pairsThen)
      await to.stop('SIGKILL')
    }
    const to = await startProcess(join(directory, 'to'))
    const ended = await startProcess(join(directory, 'ended'))
    const [, end = ''] = /to (\S+): --at/.exec(await refused(ended, 'restore', '--at', fourth.at, full, one)) ?? []
    await perkv(ended, 'restore', '--at', end, full, one)
    expect(await pairs(ended)).toBe(second.pairsThen)
    await ended.stop('SIGKILL')
    const at = (time: string, ...files: string[]) => refused(to, 'restore', '--at', time, ...files)
    expect(await at(third.at, full, one, two)).toMatch(
      /a delete_range at \S+ took versions that the state of that moment/,
    )
    expect(await at(before.at, full, one, two)).toMatch(/these backups go from \S+ to \S+: --at is not within/)
    expect(await at(fourth.at, full, one)).toMatch(/these backups go from \S+ to \S+: --at is not within/)
    const old = join(directory, 'old')
    await writeFile(old, await withNewestOnly(one))
    expect(await at(first.at, full, old)).toMatch(
      /old: an older version of PerKV has made it, without the versions between/,
    )
    await perkv(to, 'restore', full, old)
    expect(await pairs(to)).toBe(second.pairsThen)
    for (const each of [server, to]) await each.stop('SIGKILL')
  }),
)

/** As older versions wrote increments. */
async function withNewestOnly(path: string): Promise<Buffer> {
  const sums = new RunningSums()
  const preamble = sums.preamble.bind(sums)
  sums.preamble = (bytes) => {
    bytes.writeUInt32BE(4, BACKUP_MAGIC.length)
    preamble(bytes)
  }
  const encoder = new BackupEncoder(sums)
  const pieces: Buffer[] = []
  for await (const block of decodeBackup(chunksOf(await readFile(path)))) {
    if (block.type === 'header') pieces.push(encoder.begin(block.header))
    if (block.type !== 'data') continue
    const isNewest = (key: Uint8Array, i: number) =>
      i === 0 || Buffer.compare(block.pairs[i - 1]?.key ?? key, key) !== 0
    pieces.push(encoder.data(block.pairs.filter(({ key }, i) => isNewest(key, i))))
  }
  return Buffer.concat([...pieces, encoder.end()])
}

/** As 0.1 wrote it. */
async function withoutStore(path: string): Promise<Buffer> {
  const encoder = new BackupEncoder()
  const pieces: Buffer[] = []
  for await (const block of decodeBackup(chunksOf(await readFile(path)))) {
    if (block.type === 'header') pieces.push(encoder.begin({ ...block.header, store: undefined }))
    if (block.type === 'data') pieces.push(encoder.data(block.pairs))
  }
  return Buffer.concat([...pieces, encoder.end()])
}

async function* chunksOf(bytes: Buffer): AsyncGenerator<Buffer> {
  yield bytes
}
