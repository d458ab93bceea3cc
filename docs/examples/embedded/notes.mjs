#!/usr/bin/env node
/**
 * A notebook with tags, on a database in the program's own process: no server, no network.
 *
 *   node docs/examples/embedded/notes.mjs add TEXT with #tags    prints the note's number
 *   node docs/examples/embedded/notes.mjs list [#tag]            the notes, or those of a tag
 *   node docs/examples/embedded/notes.mjs retag #old #new        on every note that has it, all at once
 *   node docs/examples/embedded/notes.mjs remove NUMBER
 *   node docs/examples/embedded/notes.mjs check                  whether the index of tags says what the notes say
 *
 * Data is in the directory `NOTES`, `./notes` when that is not set. Keys are `note/<number>`, and `tag/<tag>/<number>` for
 * the index; a transaction writes both or neither. Exit codes: 0, 1 refused or failed, 2 used wrongly.
 */
import { open } from 'perkv'

/** Thrown out of a transaction, it rolls that back. */
class Refused extends Error {}
class Misused extends Error {}

/** @param {number | string} number */
const numbered = (number) => String(number).padStart(6, '0')
/** @param {string} number */
const noteKey = (number) => `note/${number}`
/** @param {string} tag @param {string} number */
const tagKey = (tag, number) => `tag/${tag}/${number}`
/** @param {string} text */
const tagsOf = (text) => [...new Set([...text.matchAll(/#([\p{L}\d-]+)/gu)].map(([, tag = '']) => tag))]
/** @param {string} key */
const lastPart = (key) => key.slice(key.lastIndexOf('/') + 1)

/** @param {string | undefined} given @param {RegExp} pattern @param {string} name */
function argument(given, pattern, name) {
  const [, found] = pattern.exec(given ?? '') ?? []
  if (found === undefined) throw new Misused(`${name} is missing, or is none: ${given ?? ''}`)
  return found
}
/** @param {string | undefined} given @param {string} name */
const tagOf = (given, name) => argument(given, /^#([\p{L}\d-]+)$/u, name)

/** @type {Record<string, (db: import('perkv').Db, args: readonly string[]) => Promise<void>>} */
const commands = {
  async add(db, words) {
    const text = words.join(' ')
    if (text === '') throw new Misused('there is no text')
    const number = await db.transaction(async (txn) => {
      const number = numbered(await txn.increment('last'))
      await txn.insert(noteKey(number), text)
      for (const tag of tagsOf(text)) await txn.put(tagKey(tag, number), '')
      return number
    })
    console.log(Number(number))
  },

  async list(db, [tag]) {
    const snapshot = await db.snapshot() // The index and the notes of one moment.
    if (tag === undefined) {
      for await (const { key, value } of snapshot.scan({ prefix: 'note/' })) console.log(Number(lastPart(key)), value)
      return
    }
    const numbers = []
    for await (const { key } of snapshot.scan({ prefix: tagKey(tagOf(tag, 'the tag'), ''), keysOnly: true }))
      numbers.push(lastPart(key))
    const texts = await snapshot.batchGet(numbers.map(noteKey))
    for (const [i, number] of numbers.entries()) console.log(Number(number), texts[i])
  },

  async retag(db, [from, to]) {
    const [before, after] = [tagOf(from, 'the old tag'), tagOf(to, 'the new tag')]
    const changed = await db.transaction(async (txn) => {
      let notes = 0
      for await (const { key } of txn.scan({ prefix: tagKey(before, ''), keysOnly: true })) {
        const number = lastPart(key)
        const text = (await txn.get(noteKey(number))) ?? ''
        await txn.put(
          noteKey(number),
          text.replace(/#([\p{L}\d-]+)/gu, (all, tag) => (tag === before ? `#${after}` : all)),
        )
        await txn.delete(key)
        await txn.put(tagKey(after, number), '')
        notes++
      }
      if (notes === 0) throw new Refused(`no note has #${before}`)
      return notes
    })
    console.log(`${changed} changed`)
  },

  async remove(db, [given]) {
    const number = numbered(argument(given, /^(\d+)$/, 'the number'))
    await db.transaction(async (txn) => {
      const text = await txn.get(noteKey(number))
      if (text === undefined) throw new Refused(`there is no note ${given}`)
      await txn.delete(noteKey(number))
      for (const tag of tagsOf(text)) await txn.delete(tagKey(tag, number))
    })
  },

  async check(db) {
    const snapshot = await db.snapshot()
    const wanted = []
    for await (const { key, value } of snapshot.scan({ prefix: 'note/' }))
      wanted.push(...tagsOf(value).map((tag) => tagKey(tag, lastPart(key))))
    const found = []
    for await (const { key } of snapshot.scan({ prefix: 'tag/', keysOnly: true })) found.push(key)
    if (wanted.sort().join() !== found.sort().join()) throw new Refused('the index is not what the notes say')
    console.log(`${await snapshot.count({ prefix: 'note/' })} notes, ${found.length} tags: the index is right`)
  },
}

const [name = '', ...args] = process.argv.slice(2)
try {
  const command = commands[name]
  if (command === undefined) throw new Misused(`there is no command "${name}": ${Object.keys(commands).join(', ')}`)
  const db = await open(process.env['NOTES'] ?? './notes')
  try {
    await command(db, args)
  } finally {
    await db.close()
  }
} catch (error) {
  console.error(`notes.mjs: ${error instanceof Error ? error.message : String(error)}`)
  process.exitCode = error instanceof Misused ? 2 : 1
}
