import { Core } from './core.mjs'
import { Events } from './events.mjs'
import { Follower, Leader } from './oracle.mjs'
import { Random } from './random.mjs'
import { Table } from './table.mjs'

/** As coordinator/backoff.ts has them. */
const FIRST_PAUSE_MS = 2
const LONGEST_PAUSE_MS = 100

/**
 * Writers without pause that all put one row, each on a server of its own: start_ts, the change that locks, commit_ts, the change that
 * unlocks. A writer that finds the row locked, or changed since it read it, tries again after a pause.
 * @returns commits and failed tries per second.
 */
export function hotRow(costs, { writers, nodes = 10, seed = 1, ms = 20_000 }) {
  const events = new Events()
  const random = new Random(seed)
  const table = new Table(events, random, costs, { nodes })
  const leader = new Leader(events, new Core(events), table, costs)
  const row = { owner: undefined, commitTs: 0, revision: 0 }
  const clock = { last: 0 }
  let commits = 0
  let failures = 0

  function write(name, oracle) {
    const next = (done) => oracle.next(1, () => done(++clock.last))
    let pauseMs = FIRST_PAUSE_MS
    let known = 0
    const fail = () => {
      failures++
      const ms = pauseMs * (0.5 + random.next() / 2)
      pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2)
      events.after(ms, attempt)
    }
    const attempt = () => next(lock)
    const lock = (startTs) =>
      table.change(
        (isLocked) => (isLocked ? next(commit) : look(startTs)),
        () => {
          if (row.revision !== known || row.owner !== undefined || row.commitTs > startTs) return false
          row.owner = name
          known = ++row.revision
          return true
        },
      )
    // The change was refused: the row is not as it was known. It is read, and decided again.
    const look = (startTs) =>
      table.read(
        1,
        (seen) => {
          known = seen.revision
          if (seen.owner === undefined && seen.commitTs < startTs) lock(startTs)
          else if (seen.owner === undefined) fail()
          else table.read(1, fail) // Is its transaction alive?
        },
        () => ({ ...row }),
      )
    const commit = (commitTs) =>
      table.change(
        () => {
          commits++
          pauseMs = FIRST_PAUSE_MS
          attempt()
        },
        () => {
          row.owner = undefined
          row.commitTs = commitTs
          known = ++row.revision
        },
      )
    attempt()
  }
  for (let i = 0; i < writers; i++) write(i, i === 0 ? leader : new Follower(leader))
  events.run(ms)
  return { commits: (commits / ms) * 1000, failures: (failures / ms) * 1000 }
}
