import { STATUS_CODES } from 'node:http'
import type { Grant } from '../../access/grant.js'
import { asBuffer } from '../../bytes/key-text.js'
import type { Version } from '../../percolator/api.js'
import { SAFE_HEADERS } from '../connections/browser-safety.js'
import { problemType } from '../wire/answer.js'
import { CACHE_VERSION } from '../wire/answer-version.js'
import { encodeAnswer } from '../wire/encode-answer.js'
import { etagOf } from '../wire/etag.js'
import { LongAnswer } from '../wire/long-answer.js'
import { CONTENT_TYPE } from '../wire/media-type.js'
import { PLAIN_TEXT, plainRefusal } from '../wire/plain-refusal.js'
import type { Problem } from '../wire/problem.js'
import type { Plain } from '../wire/wire.js'

/** An answer as fastify and node:http send it, except the lines that depend on the connection and the time. */
export interface AnswerText {
  readonly status: number
  /** Latin-1, each line with its CRLF. */
  readonly head: string
  /** A short body is Latin-1: each character is a byte. A long one is bytes, or encoded while it is sent. */
  readonly body: string | Buffer | LongAnswer
}

export type Format = 'json' | 'msgpack'

/** Bodies up to this size are written together with their head. */
const SHORT_BYTES = 4096

const okHead = (headers: Readonly<Record<string, string>>): string => headOf(200, { ...SAFE_HEADERS, ...headers })
const VALUE_HEAD = okHead({ 'cache-control': CACHE_VERSION })
const PROTOBUF_HEAD = okHead({ 'content-type': CONTENT_TYPE.protobuf })
const DATA_HEAD: Readonly<Record<Format, string>> = {
  json: okHead({ 'content-type': CONTENT_TYPE.json }),
  msgpack: okHead({ 'content-type': CONTENT_TYPE.msgpack }),
}

export function valueText({ value, commitTs, expireTs }: Version): AnswerText {
  const bytes = asBuffer(value)
  const expiry = expireTs === undefined ? '' : `expire-ts: ${expireTs}\r\n`
  const head = `${VALUE_HEAD}etag: ${etagOf(commitTs)}\r\n${expiry}content-type: application/octet-stream\r\n`
  return { status: 200, head: `${head}content-length: ${bytes.length}\r\n`, body: bodyOf(bytes) }
}

export function dataText(data: Plain, format: Format, grant: Grant): AnswerText {
  return withBody(200, DATA_HEAD[format], data, format, grant)
}

export function problemText(problem: Problem, format: Format, grant: Grant): AnswerText {
  const { status, headers, body } = problem
  const type = { 'content-type': problemType(format) }
  return withBody(status, headOf(status, { ...SAFE_HEADERS, ...headers, ...type }), body, format, grant)
}

export function protobufText(bytes: Buffer | LongAnswer): AnswerText {
  if (bytes instanceof LongAnswer) return { status: 200, head: PROTOBUF_HEAD, body: bytes }
  return { status: 200, head: `${PROTOBUF_HEAD}content-length: ${bytes.length}\r\n`, body: bodyOf(bytes) }
}

export function plainProblemText(problem: Problem, grant: Grant): AnswerText {
  const { status, text } = plainRefusal(problem, grant)
  const head = headOf(status, { ...SAFE_HEADERS, ...problem.headers, 'content-type': PLAIN_TEXT })
  return { status, head: `${head}content-length: ${Buffer.byteLength(text)}\r\n`, body: bodyOfText(text) }
}

function withBody(status: number, head: string, data: Plain, format: Format, grant: Grant): AnswerText {
  const encoded = encodeAnswer(data, format, grant)
  if (encoded instanceof LongAnswer) return { status, head, body: encoded }
  const body = typeof encoded === 'string' ? bodyOfText(encoded) : bodyOf(encoded)
  return { status, head: `${head}content-length: ${body.length}\r\n`, body }
}

function bodyOf(bytes: Buffer): string | Buffer {
  return bytes.length > SHORT_BYTES ? bytes : bytes.toString('latin1')
}

function bodyOfText(text: string): string | Buffer {
  return text.length > SHORT_BYTES ? Buffer.from(text) : latin1(text)
}

function headOf(status: number, headers: Readonly<Record<string, string>>): string {
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n`
  for (const name in headers) head += `${name}: ${headers[name]}\r\n`
  return head
}

/** The bytes of a text in UTF-8, each as a character. */
function latin1(text: string): string {
  return Buffer.byteLength(text) === text.length ? text : Buffer.from(text).toString('latin1')
}
