import { BinaryReader, BinaryWriter } from '@bufbuild/protobuf/wire'
import { expect } from 'vitest'
import type { Headers, Sent } from '../sent.js'
import type { TestServer } from '../support.js'

/** Messages of the protocol as a test writes them, for what the clients never send. */

type Bytes = string | Uint8Array

export interface MutationOf {
  readonly key: Bytes
  readonly value?: { readonly data?: Bytes; readonly encoding?: number }
  readonly type?: number
  readonly expireAtMs?: number | bigint
  readonly min?: Uint8Array
  readonly max?: Uint8Array
  readonly clamp?: boolean
}

export interface RangeOf {
  readonly start?: Bytes
  readonly end?: Bytes
  readonly limit?: number
  readonly reverse?: boolean
}

export interface EntryOf {
  readonly key: string
  readonly value: string
  readonly encoding: number
  readonly versionstamp: string
}

const bytesOf = (bytes: Bytes): Uint8Array => (typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes)

export function set(key: Bytes, data: Bytes, rest: Partial<MutationOf> = {}): MutationOf {
  return { key, value: { data, encoding: 3 }, type: 1, ...rest }
}

export function readBody(ranges: readonly RangeOf[]): Uint8Array {
  const writer = new BinaryWriter()
  for (const { start = '', end = '', limit = 1, reverse = false } of ranges) {
    writer.tag(1, 2).fork().tag(1, 2).bytes(bytesOf(start)).tag(2, 2).bytes(bytesOf(end))
    writer.tag(3, 0).int32(limit).tag(4, 0).bool(reverse).join()
  }
  return writer.finish()
}

export function writeBody(
  mutations: readonly MutationOf[],
  checks: readonly { readonly key: Bytes; readonly versionstamp?: Bytes }[] = [],
  enqueues: readonly Bytes[] = [],
): Uint8Array {
  const writer = new BinaryWriter()
  for (const { key, versionstamp = '' } of checks)
    writer.tag(1, 2).fork().tag(1, 2).bytes(bytesOf(key)).tag(2, 2).bytes(bytesOf(versionstamp)).join()
  for (const { key, value, type = 1, expireAtMs = 0, min, max, clamp } of mutations) {
    writer.tag(2, 2).fork().tag(1, 2).bytes(bytesOf(key))
    if (value !== undefined) {
      writer.tag(2, 2).fork()
      writer
        .tag(1, 2)
        .bytes(bytesOf(value.data ?? ''))
        .tag(2, 0)
        .int32(value.encoding ?? 3)
        .join()
    }
    writer.tag(3, 0).int32(type).tag(4, 0).int64(BigInt(expireAtMs))
    if (min !== undefined) writer.tag(5, 2).bytes(min)
    if (max !== undefined) writer.tag(6, 2).bytes(max)
    if (clamp !== undefined) writer.tag(7, 0).bool(clamp)
    writer.join()
  }
  for (const payload of enqueues) writer.tag(3, 2).fork().tag(1, 2).bytes(bytesOf(payload)).join()
  return writer.finish()
}

export function watchBody(keys: readonly Bytes[]): Uint8Array {
  const writer = new BinaryWriter()
  for (const key of keys) writer.tag(1, 2).fork().tag(1, 2).bytes(bytesOf(key)).join()
  return writer.finish()
}

type Fields = ReadonlyMap<number, readonly (number | Uint8Array)[]>

/** Every field of a message, by its number. */
export function fieldsOf(message: Uint8Array): Fields {
  const fields = new Map<number, (number | Uint8Array)[]>()
  const reader = new BinaryReader(message)
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag()
    const values = fields.get(field) ?? []
    fields.set(field, values)
    values.push(type === 2 ? reader.bytes() : reader.uint32())
  }
  return fields
}

const messages = (fields: Fields, field: number): Uint8Array[] => (fields.get(field) ?? []) as Uint8Array[]
const text = (fields: Fields, field: number, encoding: BufferEncoding = 'latin1'): string =>
  Buffer.from(messages(fields, field)[0] ?? []).toString(encoding)
const number = (fields: Fields, field: number): number => (fields.get(field)?.[0] ?? 0) as number

export function entryOf(message: Uint8Array): EntryOf {
  const fields = fieldsOf(message)
  return {
    key: text(fields, 1),
    value: text(fields, 2),
    encoding: number(fields, 3),
    versionstamp: text(fields, 4, 'hex'),
  }
}

/** A client that sends what it is told to. */
export class KvClient {
  #id: string | undefined

  constructor(
    readonly server: TestServer,
    readonly name = 'db',
    readonly headers: Headers = {},
  ) {}

  exchange(body?: unknown, headers: Headers = {}): Promise<Sent> {
    const payload = body === undefined ? undefined : JSON.stringify(body)
    return this.server.send('POST', `/kv-connect/${this.name}`, { ...this.headers, ...headers }, payload)
  }

  async id(): Promise<string> {
    this.#id ??= (await this.exchange({ supportedVersions: [3] })).json<{ databaseId: string }>().databaseId
    return this.#id
  }

  async call(method: string, body: Uint8Array, headers: Headers = {}): Promise<Sent> {
    const meant = { 'x-denokv-version': '3', 'x-denokv-database-id': await this.id() }
    const url = `/kv-connect/${this.name}/${method}`
    return this.server.send('POST', url, { ...this.headers, ...meant, ...headers }, Buffer.from(body))
  }

  /** The entries of each range. */
  async read(ranges: readonly RangeOf[]): Promise<EntryOf[][]> {
    const answer = await this.call('snapshot_read', readBody(ranges))
    expect(answer.statusCode, answer.body).toBe(200)
    expect(answer.headers['content-type']).toBe('application/x-protobuf')
    const output = fieldsOf(answer.rawPayload)
    expect([number(output, 4), number(output, 8)]).toEqual([1, 1])
    return messages(output, 1).map((range) => messages(fieldsOf(range), 1).map(entryOf))
  }

  async get(key: string): Promise<EntryOf | undefined> {
    return (await this.read([{ start: key, end: `${key}\0` }]))[0]?.[0]
  }

  /** The versionstamp, or the indexes of the checks that did not hold. */
  async write(...asked: Parameters<typeof writeBody>): Promise<string | number[]> {
    const answer = await this.call('atomic_write', writeBody(...asked))
    expect(answer.statusCode, answer.body).toBe(200)
    expect(answer.headers['content-type']).toBe('application/x-protobuf')
    const output = fieldsOf(answer.rawPayload)
    if (number(output, 1) === 1) return text(output, 2, 'hex')
    expect(number(output, 1)).toBe(2)
    return [...(messages(output, 4)[0] ?? [])]
  }
}
