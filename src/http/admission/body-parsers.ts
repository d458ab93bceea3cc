import { isUtf8 } from 'node:buffer'
import type { FastifyInstance } from 'fastify'
import { invalid, KvError } from '../../errors/kv-error.js'
import { runSliced } from '../../event-loop/time-slicer.js'
import { BODY_VALUES_PER_KEY, type Limits } from '../../limits.js'
import { readJson } from '../wire/json-reader.js'
import { foreignCharset } from '../wire/media-type.js'
import { readMsgpack } from '../wire/msgpack-reader.js'
import type { Traffic } from './traffic.js'

/** Bodies up to this size go to `JSON.parse`, which cannot be interrupted; longer ones to `readJson`. @internal */
export const JSON_AT_ONCE_BYTES_MAX = 256 * 1024
declare module 'fastify' {
  interface FastifyContextConfig {
    /** An empty body counts as `{}`. Many HTTP libraries send `content-type: application/json` without a body. */
    bodyMayBeEmpty?: boolean
  }
}

const BASE64_GROWTH = 4 / 3
/** Longer than any name of a field or op. Texts up to this length pass, however small the limits of keys and values are. */
const NAMES_BYTES_MAX = 256

type Done = (error: Error | null, body?: unknown) => void

/** Parses JSON and MessagePack. All other media types get 415, text/plain included (fastify parses it by default). */
export function parseBodies(app: FastifyInstance, traffic: Traffic, limits: Limits): void {
  const { bodyBytesMax, requestKeysMax, keyBytesMax, valueBytesMax } = limits
  const bodyLimits = {
    valuesMax: BODY_VALUES_PER_KEY * requestKeysMax,
    textBytesMax: Math.ceil(BASE64_GROWTH * Math.max(keyBytesMax, valueBytesMax)) + NAMES_BYTES_MAX,
  }
  const parseJson = app.getDefaultJsonParser('error', 'error')
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', (request, _payload, done) => {
    traffic.readBody(request, bodyBytesMax, (error, bytes) => {
      if (bytes === undefined) return done(error)
      if (bytes.length === 0 && request.routeOptions.config.bodyMayBeEmpty) return done(null, undefined)
      const charset = foreignCharset(request.headers['content-type'])
      if (charset !== undefined) return done(unsupportedCharset(charset))
      if (!isUtf8(bytes)) return done(invalid('body', 'the body is not UTF-8'))
      if (bytes.length === 0) return done(invalid('body', 'the body is empty, and not JSON'))
      const readInSteps = (then: Done): void =>
        read(readJson(bytes, bodyLimits), then, ({ message }) => `the body is not JSON: ${message}`)
      if (bytes.length > JSON_AT_ONCE_BYTES_MAX) return readInSteps(done)
      return parseJson(request, bytes.toString('utf8'), (refused, value) => {
        if (!refused) return done(null, value)
        // Reads it again for line and column: messages of `JSON.parse` lack them for some errors, and quote the body.
        readInSteps((error) => done(error ?? invalid('body', 'the body holds the name constructor.prototype')))
      })
    })
  })
  const msgpack = ['application/msgpack', 'application/x-msgpack', 'application/vnd.msgpack']
  app.addContentTypeParser(msgpack, (request, _payload, done) => {
    traffic.readBody(request, bodyBytesMax, (error, bytes) => {
      if (bytes === undefined) return done(error)
      const charset = foreignCharset(request.headers['content-type'])
      if (charset !== undefined) return done(unsupportedCharset(charset))
      return read(readMsgpack(bytes, bodyLimits), done, ({ message }) => {
        return `the body is not one MessagePack value with UTF-8 in its strs and no extensions: ${message}`
      })
    })
  })
}

function read(reading: Generator<void, unknown, void>, done: Done, detailOf: (error: SyntaxError) => string): void {
  const fail = (error: unknown): void => {
    if (error instanceof SyntaxError) done(invalid('body', detailOf(error)))
    else done(error as KvError)
  }
  let value: unknown
  try {
    value = runSliced(reading)
  } catch (error) {
    return void fail(error)
  }
  if (value instanceof Promise) value.then((body) => done(null, body), fail)
  else done(null, value)
}

function unsupportedCharset(charset: string): KvError {
  return new KvError('unsupported_media_type', `the charset must be UTF-8, not ${charset.slice(0, 40) || 'empty'}`, {})
}
