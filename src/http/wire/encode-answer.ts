import type { Grant } from '../../access/grant.js'
import { snakeCase } from '../../bytes/field-names.js'
import { LongAnswer } from './long-answer.js'
import { isKeyField, redactKeys } from './redaction.js'
import { listHead, mapHead, memoryOf, type Plain, toJson, toMsgpack } from './wire.js'

/** Answers up to this size are encoded at once. Longer ones are encoded in steps of this size while the client receives them. */
export const ANSWER_STEP_BYTES = 256 * 1024
/** Estimated encoded bytes per value, besides the bytes of text and byte strings. */
const VALUE_BYTES = 64

type Piece = string | Buffer

interface Format {
  whole(value: Plain): Piece
  listHead(length: number): Piece
  objectHead(fields: number): Piece
  /** @param isFirst whether it is the first field of its object. */
  name(name: string, isFirst: boolean): Piece
  between: Piece
  listEnd: Piece
  objectEnd: Piece
}

const NOTHING = Buffer.alloc(0)
const FORMATS: Readonly<Record<'json' | 'msgpack', Format>> = {
  json: {
    whole: toJson,
    listHead: () => '[',
    objectHead: () => '{',
    name: (name, isFirst) => `${isFirst ? '' : ','}"${name}":`,
    between: ',',
    listEnd: ']',
    objectEnd: '}',
  },
  msgpack: {
    whole: toMsgpack,
    listHead,
    objectHead: mapHead,
    name: toMsgpack,
    between: NOTHING,
    listEnd: NOTHING,
    objectEnd: NOTHING,
  },
}

/** Encodes an answer. Keys that the grant does not cover are replaced: see `redactKeys`. */
export function encodeAnswer(data: Plain, format: 'json' | 'msgpack', grant: Grant | undefined): Piece | LongAnswer {
  const scoped = grant?.isScoped ? grant : undefined
  if (isLong(data))
    return new LongAnswer(joined(piecesOf(data, FORMATS[format], scoped, false), format), memoryOf(data))
  const shown = scoped === undefined ? data : redactKeys(data, scoped)
  return format === 'json' ? `${toJson(shown)}\n` : toMsgpack(shown)
}

export function jsonPieces(data: Plain): Generator<Piece, void, void> {
  return piecesOf(data, FORMATS.json, undefined, false)
}

function isLong(data: Plain): boolean {
  return bytesLeft(data, ANSWER_STEP_BYTES) < 0
}

/** Subtracts the sizes of values from `left`; stops at the first value that exceeds it. */
function bytesLeft(value: Plain, left: number): number {
  if (typeof value === 'string' || value instanceof Uint8Array) return left - VALUE_BYTES - value.length
  if (typeof value !== 'object' || value === null) return left - VALUE_BYTES
  let rest = left - VALUE_BYTES
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length && rest >= 0; i++) rest = bytesLeft(value[i], rest)
    return rest
  }
  for (const name in value) {
    rest = bytesLeft((value as Record<string, Plain>)[name], rest)
    if (rest < 0) return rest
  }
  return rest
}

function* piecesOf(
  value: Plain,
  format: Format,
  scoped: Grant | undefined,
  isKey: boolean,
): Generator<Piece, void, void> {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array || !isLong(value)) {
    yield format.whole(scoped === undefined ? value : redactKeys(value, scoped, isKey))
    return
  }
  if (Array.isArray(value)) {
    yield format.listHead(value.length)
    for (let i = 0; i < value.length; i++) {
      if (i > 0) yield format.between
      yield* piecesOf(value[i], format, scoped, isKey)
    }
    yield format.listEnd
    return
  }
  const fields = Object.entries(value as Record<string, Plain>).filter(([, field]) => field !== undefined)
  yield format.objectHead(fields.length)
  for (const [index, [name, field]] of fields.entries()) {
    yield format.name(snakeCase(name), index === 0)
    yield* piecesOf(field, format, scoped, isKeyField(name))
  }
  yield format.objectEnd
}

/** Joins short pieces into buffers of about ANSWER_STEP_BYTES. Buffers, because Node would encode a long text all at once. */
function* joined(pieces: Generator<Piece, void, void>, format: 'json' | 'msgpack'): Generator<Buffer, void, void> {
  let text = ''
  let parts: Buffer[] = []
  let bytes = 0
  for (const piece of pieces) {
    if (typeof piece === 'string') text += piece
    else parts.push(piece)
    bytes += piece.length
    if (bytes < ANSWER_STEP_BYTES && parts.length < PARTS_MAX) continue
    yield format === 'json' ? Buffer.from(text) : Buffer.concat(parts)
    text = ''
    parts = []
    bytes = 0
  }
  yield format === 'json' ? Buffer.from(`${text}\n`) : Buffer.concat(parts)
}

const PARTS_MAX = 2048
