import fc from 'fast-check'
import { Packr } from 'msgpackr'
import { describe, expect, test } from 'vitest'
import { KvError } from '../../../src/errors/kv-error.js'
import { runToEnd } from '../../../src/event-loop/time-slicer.js'
import { readJson } from '../../../src/http/wire/json-reader.js'
import { readMsgpack } from '../../../src/http/wire/msgpack-reader.js'
import { BODY_DEPTH_MAX, BODY_FIELDS_MAX } from '../../../src/limits.js'

const LIMITS = { valuesMax: 1000, textBytesMax: 10_000 }
const fromJson = (text: string | Buffer, limits = LIMITS): unknown => runToEnd(readJson(Buffer.from(text), limits))
const fromMsgpack = (bytes: Uint8Array, limits = LIMITS): unknown => runToEnd(readMsgpack(Buffer.from(bytes), limits))
const packr = new Packr({ useRecords: false, moreTypes: false })

/** What a reading came to: a value, or what refused it. */
function outcome(read: () => unknown): unknown {
  try {
    return { value: read() }
  } catch (error) {
    if (error instanceof SyntaxError) return 'malformed'
    if (error instanceof KvError) return error.code
    throw error
  }
}
const parsed = (text: string): unknown => outcome(() => JSON.parse(text) as unknown)

const value = fc.jsonValue({ maxDepth: 6, stringUnit: 'binary' })
const hasProto = (text: string): boolean => text.includes('__proto__')

describe('JSON', () => {
  test('reads what JSON.parse reads', () => {
    const space = fc.constantFrom('', ' ', '\n\t', undefined, 2, 10)
    fc.assert(
      fc.property(value, space, (given, indent) => {
        const text = JSON.stringify(given, null, indent)
        fc.pre(!hasProto(text))
        expect(fromJson(text)).toEqual(JSON.parse(text))
      }),
      { examples: [[{ a: [1, -0, 1e21, 1.5e-7, true, false, null, '', '\ud83d\ude00"\\\u0000'] }, 2]] },
    )
  })

  test('passes over white space of any length, as JSON.parse does', () => {
    const space = ' '.repeat(2 ** 21)
    expect(fromJson(`${space}{${space}"a":1}${space}`)).toEqual({ a: 1 })
  })

  const TEXTS = [
    ...['', ' ', '{', '}', '[', ']', '[1,]', '[,1]', '{"a"}', '{"a":}', '{"a":1,}', '{,}', '{a:1}', "{'a':1}", '[1 2]'],
    ...[
      '01',
      '-',
      '-0',
      '+1',
      '1.',
      '.5',
      '1e',
      '1e5',
      '1E+5',
      '0x1',
      '1n',
      'NaN',
      'Infinity',
      '-1.5e-7',
      '123456789012345678',
    ],
    ...[
      'tru',
      'true',
      'truefalse',
      'nulll',
      'null',
      '"',
      '"\\',
      '"\\"',
      '"\\u12"',
      '"\\ud800"',
      '"\n"',
      '"\t"',
      '"\\/"',
      '"a" "b"',
    ],
    ...[
      '{"a":1}{}',
      '1 ',
      ' 1',
      '[]]',
      '[[]',
      '{"a":[{"b":"\\\\\\""}]}',
      `"${'\\'.repeat(200)}"`,
      `"${'\\'.repeat(201)}"`,
    ],
    ...[`"${'x'.repeat(100)}\\"${'y'.repeat(100)}"`, `"${'é'.repeat(50)}"`, '{"a":1,"a":2}', '/**/1', '\u00a01', '\f1'],
  ]
  test.each(TEXTS)('%j: the same as JSON.parse', (text) => {
    expect(outcome(() => fromJson(text))).toEqual(parsed(text))
  })

  test('refuses what JSON.parse refuses', { tags: ['long'] }, () => {
    const cut = fc
      .tuple(value, fc.nat(), fc.nat(3), fc.constantFrom(...'{}[],:"\\0-.eEtn ', '\n', '\u0001'))
      .map((parts) => {
        const [given, place, removed, added] = parts
        const text = JSON.stringify(given)
        const at = place % (text.length + 1)
        return `${text.slice(0, at)}${added}${text.slice(at + removed)}`
      })
    fc.assert(
      fc.property(cut, (text) => {
        fc.pre(text.isWellFormed() && !hasProto(text))
        expect(outcome(() => fromJson(text))).toEqual(parsed(text))
      }),
      { numRuns: 3000 },
    )
  })

  test('a byte order mark is no part of it', () => {
    expect(fromJson('\ufeff{"a":1}')).toEqual({ a: 1 })
  })

  test('a prototype is no field', () => {
    expect(outcome(() => fromJson('{"__proto__":{"a":1}}'))).toBe('invalid_argument')
    expect(outcome(() => fromJson('{"\\u005f_proto__":1}'))).toBe('invalid_argument')
  })

  test('more than any request needs is refused, and named where it is one field', () => {
    const tooLarge = (text: string): unknown => outcome(() => fromJson(text))
    expect(tooLarge('['.repeat(BODY_DEPTH_MAX + 1) + ']'.repeat(BODY_DEPTH_MAX + 1))).toBe('invalid_argument')
    expect(tooLarge('['.repeat(BODY_DEPTH_MAX) + ']'.repeat(BODY_DEPTH_MAX))).toHaveProperty('value')
    const fields = (count: number): string => `{${Array.from({ length: count }, (_, i) => `"f${i}":0`).join(',')}}`
    expect(tooLarge(fields(BODY_FIELDS_MAX))).toHaveProperty('value')
    expect(tooLarge(fields(BODY_FIELDS_MAX + 1))).toBe('invalid_argument')
    expect(tooLarge(`[${'0,'.repeat(998)}0]`)).toHaveProperty('value')
    expect(tooLarge(`[${'0,'.repeat(999)}0]`)).toBe('payload_too_large')
    const long = `{"ops":[{},{"value":"${'x'.repeat(60_001)}"}]}`
    expect(() => fromJson(long)).toThrow(/^ops\[1\]\.value has 60003 bytes, over the limit of 10000$/)
  })
})

describe('MessagePack', () => {
  test('reads what msgpackr writes', () => {
    fc.assert(
      fc.property(value, (given) => {
        fc.pre(!hasProto(JSON.stringify(given)) && JSON.stringify(given).isWellFormed())
        expect(fromMsgpack(packr.pack(given))).toEqual(packr.unpack(packr.pack(given)))
      }),
    )
  })

  const hex = (text: string): unknown => outcome(() => fromMsgpack(Buffer.from(text, 'hex')))
  test('every format of a number', () => {
    const numbers = [
      ['7f', 127],
      ['e0', -32],
      ['cc80', 128],
      ['cd0100', 256],
      ['ce00010000', 65536],
      ['cf0004000000000001', 2 ** 50 + 1],
      ['d080', -128],
      ['d18000', -32768],
      ['d280000000', -(2 ** 31)],
      ['d3fffffffffffffffe', -2],
      ['ca40200000', 2.5],
      ['cb4004000000000000', 2.5],
    ] as const
    for (const [bytes, number] of numbers) expect(hex(bytes), bytes).toEqual({ value: number })
  })

  test('lengths of every size', () => {
    for (const length of [0, 1, 15, 16, 31, 32, 255, 256, 9000]) {
      const text = 'x'.repeat(length)
      const bytes = Buffer.alloc(length, 1)
      const list = Array.from({ length: Math.min(length, 900) }, (_, i) => i)
      for (const given of [text, bytes, list, { [text]: 1 }]) expect(fromMsgpack(packr.pack(given))).toEqual(given)
    }
    const fields = Object.fromEntries(Array.from({ length: BODY_FIELDS_MAX }, (_, i) => [`f${i}`, i]))
    expect(fromMsgpack(packr.pack(fields))).toEqual(fields)
    expect(outcome(() => fromMsgpack(packr.pack({ ...fields, more: 1 })))).toBe('invalid_argument')
  })

  test('an extension of any type and size is refused, and the unused byte', () => {
    for (let type = 0; type < 256; type++) {
      const of = type.toString(16).padStart(2, '0')
      for (const head of [
        `d4${of}`,
        `d5${of}`,
        `d6${of}`,
        `d7${of}`,
        `d8${of}`,
        `c701${of}`,
        `c80001${of}`,
        `c900000001${of}`,
      ])
        expect(hex(`91${head}${'00'.repeat(16)}`), head).toBe('malformed')
    }
    expect(hex('c1')).toBe('malformed')
  })

  test('a few bytes that stand for many: references to references', () => {
    // [id 0: [1], id 1: [pointer 0, pointer 0], id 2: [pointer 1, pointer 1], ...] as msgpackr's structured clones.
    const parts = [Buffer.from('dc0032', 'hex')]
    for (let i = 0; i < 50; i++) {
      const id = Buffer.from([0xd6, 0x69, 0, 0, 0, i])
      const pointer = Buffer.from([0xd6, 0x70, 0, 0, 0, i - 1])
      parts.push(id, i === 0 ? Buffer.from('9101', 'hex') : Buffer.concat([Buffer.of(0x92), pointer, pointer]))
    }
    expect(outcome(() => fromMsgpack(Buffer.concat(parts)))).toBe('malformed')
  })

  test.each([
    ['text that is no UTF-8', 'a2ff61'],
    ['longer text that is no UTF-8', `b8${'61'.repeat(23)}ff`],
    ['half a surrogate pair', 'a3eda080'],
    ['two values', '8080'],
    ['a cut map', '82a161'],
    ['a map of 4 billion without a field', 'df0000000f'],
    ['a name that is a number', '810101'],
    ['a name that is bin', '81c4016101'],
    ['nothing', ''],
  ])('%s is malformed', (_, bytes) => {
    expect(hex(bytes)).toBe('malformed')
  })

  test('a name that would change what the object is', () => {
    expect(hex('81a95f5f70726f746f5f5f80')).toBe('invalid_argument')
  })

  test('U+FFFD that was sent is text like any other', () => {
    for (const count of [1, 2, 100, 3000])
      expect(fromMsgpack(packr.pack('\ufffd'.repeat(count)))).toBe('\ufffd'.repeat(count))
  })

  test('any bytes are a value or refused', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        expect(outcome(() => fromMsgpack(bytes))).toBeDefined()
      }),
      { numRuns: 3000 },
    )
  })

  test('values keep no more than themselves', () => {
    const message = packr.pack({ small: Buffer.alloc(10), large: Buffer.alloc(9000) })
    const { small } = fromMsgpack(message) as { small: Buffer }
    expect(small.buffer).not.toBe(message.buffer)
  })
})
