// perkv/level on a database in the program, beside classic-level by itself: batches on disk, and iterators over all entries.
import { ClassicLevel } from 'classic-level'
import { open } from '../../dist/index.js'
import { PerkvLevel } from '../../dist/level/index.js'
import { median } from '../harness/numbers.mjs'
import { keyOf, valueAt } from '../harness/payload.mjs'
import { makeDirectory, removeDirectory } from '../harness/process.mjs'
import { row } from '../harness/report.mjs'
import { inTurn } from '../harness/rounds.mjs'

export const scenarios = {
  level: {
    full: { entries: 100_000, batch: 100, rounds: 7, seconds: 2 },
    quick: { entries: 10_000, batch: 100, rounds: 3, seconds: 0.5 },
    run: measure,
  },
}

async function measure({ entries, batch, rounds, seconds }) {
  const directories = [makeDirectory(), makeDirectory()]
  const perkv = new PerkvLevel(() => open(directories[0]))
  const classic = new ClassicLevel(directories[1])
  try {
    for (const db of [perkv, classic])
      for (let from = 0; from < entries; from += 1000) await db.batch(puts(from, 1000), { sync: true })
    const contenders = (work) => ({
      perkv: (time) => rate(time, () => work(perkv)),
      classic: (time) => rate(time, () => work(classic)),
    })
    let at = 0
    const writeBatch = async (db) => {
      at += batch
      await db.batch(puts(at % (entries - batch), batch), { sync: true })
      return batch
    }
    const iterate = async (db) => {
      let count = 0
      for await (const _ of db.iterator()) count++
      return count
    }
    const read = async (db) => {
      at += 7919
      await db.get(keyOf(at % entries))
      return 1
    }
    const rows = []
    for (const [what, work] of [
      [`entries in batches of ${batch}, on disk`, writeBatch],
      ['entries of an iterator', iterate],
      ['get', read],
    ]) {
      const rates = await inTurn(contenders(work), { rounds, seconds })
      const [of, over] = [median(rates.perkv), median(rates.classic)]
      rows.push(
        row(`${what}: perkv/level`, of, { unit: '/s' }),
        row(`${what}: classic-level`, over, { unit: '/s' }),
        row(`${what}: ratio`, median(rates.perkv.map((one, round) => one / rates.classic[round]))),
      )
    }
    return rows
  } finally {
    await Promise.all([perkv.close(), classic.close()])
    directories.forEach(removeDirectory)
  }
}

function puts(from, count) {
  return Array.from({ length: count }, (_, i) => ({
    type: 'put',
    key: keyOf(from + i),
    value: valueAt(from + i).toString(),
  }))
}

/** Operations per second of works that follow each other. */
async function rate(seconds, work) {
  const beganMs = performance.now()
  let count = 0
  while (performance.now() - beganMs < seconds * 1000) count += await work()
  return (1000 * count) / (performance.now() - beganMs)
}
