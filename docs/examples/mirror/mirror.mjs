#!/usr/bin/env node
/**
 * Keeps a second server equal to a prefix of a first.
 *
 *   node docs/examples/mirror/mirror.mjs SOURCE TARGET PREFIX
 *       Copies all keys that begin with PREFIX from the server at SOURCE to that at TARGET, and follows their changes, until Ctrl-C.
 *   node docs/examples/mirror/mirror.mjs compare SOURCE TARGET PREFIX
 *       Compares the copy with the source as of the same moment. A mirror may be running.
 *
 * The copy belongs to the mirror: keys below PREFIX that the source does not have are deleted at TARGET. Its state is the key
 * `mirror/PREFIX` there. Exit codes: 0 stopped, or equal; 1 not equal, not whole yet, or something failed; 2 used wrongly.
 */
import { connect } from 'perkv/client'
import { compare } from './compare.mjs'
import { stateKeyOf } from './copy.mjs'
import { mirror } from './follow.mjs'

const SHOWN = 5

const print = (/** @type {string} */ line) => process.stdout.write(`${line}\n`)

/** @param {string} source @param {string} target @param {string} prefix */
async function runMirror(source, target, prefix) {
  const [from, to] = [connect(source), connect(target)]
  const stop = new AbortController()
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) process.once(signal, () => stop.abort())
  print(`mirrors "${prefix}" of ${source} at ${target}`)
  await mirror(from, to, prefix, stop.signal, print)
  await Promise.all([from.close(), to.close()])
  return 0
}

/** @param {string} source @param {string} target @param {string} prefix */
async function runCompare(source, target, prefix) {
  const [from, to] = [connect(source), connect(target)]
  const compared = await compare(from, to, prefix)
  await Promise.all([from.close(), to.close()])
  if (compared === undefined) print('the copy is not whole yet')
  else {
    const { position, pairs, differences } = compared
    print(`at ${position} the source has ${pairs} pairs; ${differences.length} differ in the copy`)
    for (const key of differences.slice(0, SHOWN)) print(`  ${key}`)
  }
  return compared?.differences.length === 0 ? 0 : 1
}

const [isCompare, given] =
  process.argv[2] === 'compare' ? [true, process.argv.slice(3)] : [false, process.argv.slice(2)]
const [source, target, prefix, ...others] = given
try {
  if (source === undefined || target === undefined || prefix === undefined || others.length > 0)
    throw new RangeError('give the URL of the source, that of the target, and a prefix')
  stateKeyOf(prefix)
  process.exitCode = await (isCompare ? runCompare : runMirror)(source, target, prefix)
} catch (error) {
  process.stderr.write(`mirror.mjs: ${error instanceof Error ? error.message : error}\n`)
  process.exitCode = error instanceof RangeError || error instanceof TypeError ? 2 : 1
}
