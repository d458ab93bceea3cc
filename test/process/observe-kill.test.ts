import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'
import { connect, type Db, isKvError } from '../../src/client/index.js'
import { Random } from '../anomalies/random.js'
import { report, settings } from '../anomalies/settings.js'
import { MortalServer } from './mortal-server.js'
import { ENV, killAll, withTempDir } from './server-process.js'

/** `npm run test:kill` is the long form. Documents that are put between two kills. */
const { seed, txns, kills } = settings({ seed: 1, txns: 60, kills: 2 })
const WORKERS = 4
const DOCUMENTS = 30
const WRITERS = 6
const WORDS = Array.from({ length: 60 }, (_, i) => `word${i}`)
const POLL_MS = 50
const WORKER = fileURLToPath(new URL('./observing-worker.mjs', import.meta.url))

const workers: ChildProcess[] = []
afterAll(() => {
  for (const worker of workers) worker.kill('SIGKILL')
  killAll()
})

function startWorker(url: string): ChildProcess {
  const worker = spawn(process.execPath, [WORKER, url], { env: ENV, stdio: ['ignore', 'inherit', 'inherit'] })
  workers.push(worker)
  return worker
}

async function killWorker(worker: ChildProcess): Promise<void> {
  const ended = once(worker, 'exit')
  worker.kill('SIGKILL')
  await ended
}

/** Puts and deletes documents. Each version of a document has a number of its own, also where an answer was lost. */
class Documents {
  readonly #versions = new Map<string, number>()
  counts = { put: 0, deleted: 0, lost: 0 }
  isEnding = false

  constructor(
    readonly db: Db,
    readonly server: MortalServer,
    readonly onPut: () => void,
  ) {}

  /** Tries to put or delete a document, all of them together. */
  changesOf(name: string): number {
    return this.#versions.get(name) ?? 0
  }

  async run(random: Random, names: readonly string[]): Promise<void> {
    while (!this.isEnding) {
      await this.#change(random, random.pick(names))
      this.onPut()
    }
    // What was lost may have come in: the last version of each is known.
    for (const name of names) while (!(await this.#change(random, name, true)));
  }

  async #change(random: Random, name: string, isLast = false): Promise<boolean> {
    const version = this.changesOf(name) + 1
    this.#versions.set(name, version)
    const text = [version, ...random.shuffled(WORDS).slice(0, 1 + random.below(10))].join(' ')
    try {
      if (!isLast && random.chance(0.1)) {
        await this.db.delete(`doc/${name}`)
        this.counts.deleted++
      } else {
        await this.db.put(`doc/${name}`, text)
        this.counts.put++
      }
      return true
    } catch {
      this.counts.lost++
      await this.server.isUp()
      return false
    }
  }
}

async function atRest(db: Db): Promise<void> {
  for (;;) {
    const { pending, parked } = await db.observers.get('index')
    expect(parked).toBe(0)
    if (pending === 0) return
    await new Promise((resolve) => setTimeout(resolve, POLL_MS))
  }
}

async function pairsOf(db: Db, prefix: string): Promise<Map<string, string>> {
  const pairs = new Map<string, string>()
  for await (const { key, value } of db.scan({ prefix })) pairs.set(key.slice(prefix.length), value)
  return pairs
}

/** Each run has seen a version that no run before it had: it had a change of its own. */
function checkRuns(name: string, seen: readonly string[]): void {
  const versions = seen.filter((each) => each !== 'gone').map(Number)
  expect([name, versions]).toEqual([name, [...new Set(versions)].sort((a, b) => a - b)])
}

test('kill -9 of a server and of its workers, while documents come: the index is that of the documents, and each change was run once', () =>
  withTempDir(async (data) => {
    const random = new Random(seed)
    const server = await MortalServer.start(data)
    const db = connect(server.url, { lockWaitMs: 1000 })
    const counts = { servers: 0, workers: 0 }
    const alive = Array.from({ length: WORKERS }, () => startWorker(server.url))
    let killsLeft = kills
    let untilKill = txns
    let killing: Promise<void> | undefined
    const kill = async (): Promise<void> => {
      if (counts.servers <= counts.workers) {
        counts.servers++
        await server.restart()
      } else {
        counts.workers++
        const at = random.below(WORKERS)
        await killWorker(alive[at] as ChildProcess)
        alive[at] = startWorker(server.url)
      }
      untilKill = txns
      killing = undefined
    }
    let onDone: () => void = () => {}
    const done = new Promise<void>((resolve) => {
      onDone = resolve
    })
    const documents = new Documents(db, server, () => {
      if (--untilKill > 0 || killing !== undefined) return
      if (killsLeft === 0) return onDone()
      killsLeft--
      killing = kill()
      killing.catch(() => {}) // Awaited below.
    })
    await registered(db)
    const names = Array.from({ length: DOCUMENTS }, (_, i) => `d${String(i).padStart(2, '0')}`)
    const writing = Array.from({ length: WRITERS }, (_, i) =>
      documents.run(
        random.fork(),
        names.filter((_, at) => at % WRITERS === i),
      ),
    )
    await Promise.race([done, Promise.all(writing)])
    await killing
    documents.isEnding = true
    await Promise.all(writing)
    await atRest(db)

    const texts = await pairsOf(db, 'doc/')
    const index = [...texts].flatMap(([name, text]) =>
      text
        .split(' ')
        .slice(1)
        .map((word) => `${word}/${name}`),
    )
    expect([...(await pairsOf(db, 'word/')).keys()]).toEqual(index.sort())
    const runs = await pairsOf(db, 'run/')
    const counters = await pairsOf(db, 'runs/')
    let total = 0
    for (const name of names) {
      const seen = [...runs].filter(([key]) => key.startsWith(`${name}/`)).map(([, value]) => value)
      expect([name, seen.length]).toEqual([name, Number(counters.get(name))])
      expect(seen.length).toBeLessThanOrEqual(documents.changesOf(name))
      expect([name, seen.at(-1)]).toEqual([name, texts.get(name)?.split(' ')[0]])
      checkRuns(name, seen)
      total += seen.length
    }
    report({ test: 'observe-kill', seed, ...counts, documents: documents.counts, runs: total })
    expect([counts.servers + counts.workers, server.lives]).toEqual([kills, counts.servers + 1])
    for (const worker of alive) await killWorker(worker)
    await server.end()
  }))

/** By the first of the workers. */
async function registered(db: Db): Promise<void> {
  for (;;) {
    try {
      await db.observers.get('index')
      return
    } catch (error) {
      if (!isKvError(error, 'not_found')) throw error
      await new Promise((resolve) => setTimeout(resolve, POLL_MS))
    }
  }
}
