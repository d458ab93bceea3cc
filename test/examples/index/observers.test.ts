import fc from 'fast-check'
import { expect, test } from 'vitest'
import { INDEX_PREFIXES } from '../../../docs/examples/index/derived.mjs'
import { OBSERVERS } from '../../../docs/examples/index/observers.mjs'
import { differences, rebuild } from '../../../docs/examples/index/rebuild.mjs'
import { hashOf } from '../../../docs/examples/index/text.mjs'
import { World } from './interleavings.js'

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 1000)
/** Few names, places and texts, so that runs meet: equal documents, links to them, links that come and go. */
const NAMES = ['a/a/a/x', 'a/a/a/y', 'b/b/b/x', 'c/c/c/x']
const TEXTS = ['MIT', 'MIT', 'see https://a/a/a', 'see https://b/b/b and https://a/a/a', 'see https://b/b/b', undefined]

function indexOf(world: World): Map<string, string> {
  return new Map(INDEX_PREFIXES.flatMap((prefix) => world.pairs(prefix)))
}

function wanted(world: World): Map<string, string> {
  return rebuild(world.pairs('doc/').map(([key, text]) => [key.slice('doc/'.length), text]))
}

const step = fc.oneof(
  fc.record({ kind: fc.constant('put' as const), name: fc.constantFrom(...NAMES), text: fc.constantFrom(...TEXTS) }),
  fc.record({ kind: fc.constant('begin' as const), choice: fc.nat(20) }),
  fc.record({ kind: fc.constant('end' as const), choice: fc.nat(20) }),
)

test('however runs overlap, at rest the index is the one made from scratch', { tags: ['long'] }, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60, size: 'max' }), async (steps) => {
      const world = new World(OBSERVERS)
      for (const one of steps)
        if (one.kind === 'put') world.put(`doc/${one.name}`, one.text)
        else if (one.kind === 'begin') await world.begin(one.choice)
        else world.end(one.choice)
      await world.drain()
      expect(differences(indexOf(world), wanted(world))).toEqual([])
    }),
    { numRuns: RUNS },
  )
})

test('a document comes while the links to its address are counted', async () => {
  const world = new World(OBSERVERS)
  world.put('doc/a/0/0/x', 'MIT') // Canonical, until a document is equal and has links to it.
  await world.drain()
  world.put('doc/b/b/b/x', 'see https://a/a/a')
  expect(await world.begin('parse doc/b/b/b/x')).toBe(true)
  world.end(0)
  expect(await world.begin('counts count/a/a/a')).toBe(true) // Finds no document at a/a/a whose cluster it could tell.
  world.put('doc/a/a/a/x', 'MIT')
  expect(await world.begin('parse doc/a/a/a/x')).toBe(true)
  world.end(1)
  expect(await world.begin(`cluster cluster/${hashOf('MIT')}`)).toBe(true) // Finds no count yet.
  world.end(0)
  world.end(0)
  await world.drain()
  expect(differences(indexOf(world), wanted(world))).toEqual([])
  expect(indexOf(world).get(`cluster/${hashOf('MIT')}`)).toBe('{"canonical":"a/a/a/x","documents":2}')
})

test('when all documents are gone, so is the index', async () => {
  const world = new World(OBSERVERS)
  for (const name of NAMES) world.put(`doc/${name}`, 'see https://b/b/b')
  await world.drain()
  expect(indexOf(world).size).toBeGreaterThan(NAMES.length)
  for (const name of NAMES) world.put(`doc/${name}`, undefined)
  await world.drain()
  expect([...indexOf(world)]).toEqual([])
})

test('the comparison names what differs', () => {
  const found = new Map([
    ['a', '1'],
    ['b', '1'],
  ])
  const other = new Map([
    ['b', '2'],
    ['c', '3'],
  ])
  expect(differences(found, other)).toEqual(['a is "1", not nothing', 'b is "1", not "2"', 'c is nothing, not "3"'])
})
