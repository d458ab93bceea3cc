import { readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Random } from '../../../anomalies/random.js'

const FILES = /^(.*\.ldb|.*\.log|MANIFEST-.*|CURRENT)$/
const PAGE = 4096

export const KINDS = ['flip', 'flips', 'overwrite', 'truncate', 'zero', 'delete'] as const
export type DamageKind = (typeof KINDS)[number]

export async function filesOf(directory: string, pattern = FILES): Promise<string[]> {
  return (await readdir(directory)).filter((file) => pattern.test(file)).sort()
}

/** @returns what was done, for people. */
export async function damage(directory: string, random: Random, kind: DamageKind, file: string): Promise<string> {
  const path = join(directory, file)
  if (kind === 'delete') {
    await rm(path)
    return `${file}: deleted`
  }
  const bytes = await readFile(path)
  const at = random.below(bytes.length)
  if (kind === 'truncate') {
    await truncate(path, at)
    return `${file}: cut at ${at} of ${bytes.length}`
  }
  const length = { flip: 1, flips: 1 + random.below(16), overwrite: 1 + random.below(600), zero: PAGE }[kind]
  const from = kind === 'zero' ? at - (at % PAGE) : at
  for (let i = from; i < Math.min(bytes.length, from + length); i++) {
    if (kind === 'zero') bytes[i] = 0
    else if (kind === 'overwrite') bytes[i] = random.below(256)
    else bytes[i] = (bytes[i] as number) ^ (1 << random.below(8))
  }
  await writeFile(path, bytes)
  return `${file}: ${kind} of ${length} from ${from} of ${bytes.length}`
}
