import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import { constants } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { KvError, type Lease } from '../../client/index.js'
import { LEASE_TTL_MS_MAX, LEASE_TTL_MS_MIN } from '../../limits.js'
import { durationMs } from '../../server/flags.js'
import { leaseNameOf } from './arguments.js'
import { type Call, clientCommand } from './client-command.js'
import { shownText } from './shown.js'

const PASSED = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const
const GRACE_MS_DEFAULT = 5000
/** Of the TTL, so that one renewal may hang before the command is ended: renewals begin at a third. */
const GRACE_SHARE_MAX = 1 / 5
/** Between two looks at what the command has left running. */
const LEFT_RUNNING_MS = 50
/** A wait that is not over by then is noted. */
const WAIT_NOTED_MS = 2000

/** As shells exit for a command that is not there, or may not be run. */
const EXIT_NOT_FOUND = 127
const EXIT_NOT_RUN = 126

export const lease = clientCommand({
  operands: ['NAME', '-- COMMAND', '[ARG...]'],
  flags: {
    ttl: { value: 'TIME', help: 'how long others wait when this machine dies', default: '30s', variable: false },
    wait: { value: 'TIME', help: 'longest wait for another holder, 0: none; default: any', variable: false },
    grace: { value: 'TIME', help: 'from SIGTERM to SIGKILL; default: 5s, a fifth of --ttl at most', variable: false },
  },
  about: `Runs COMMAND while it holds the lease NAME, which one holder has at a time, and exits as COMMAND does. The lease is renewed until
then, and, except on a terminal, until what COMMAND has left running is over too. When it could not be renewed, COMMAND gets SIGTERM, and SIGKILL before another holder may be granted the lease. COMMAND has
the NAME in PERKV_LEASE and the fence in PERKV_FENCE: a transaction that checks it commits only while the lease is held.`,
  example: `$ perkv lease jobs/report -- ./report.sh
$ echo '{"checks": [{"lease": "'$PERKV_LEASE'", "fence": '$PERKV_FENCE'}], "ops": [...]}' | perkv txn -   # in report.sh`,

  async run({ db, flags, note }) {
    const [given, command = '', ...args] = flags.positionals
    const name = leaseNameOf(given) ?? ''
    const ttlMs = durationMs(flags.required('ttl'), LEASE_TTL_MS_MIN, LEASE_TTL_MS_MAX)
    const wait = flags.optional('wait')
    const grace = flags.optional('grace')
    const graceMsMax = Math.floor(ttlMs * GRACE_SHARE_MAX)
    const graceMs = grace === undefined ? Math.min(GRACE_MS_DEFAULT, graceMsMax) : durationMs(grace, 0, graceMsMax)
    const waitMs = wait === undefined ? Number.POSITIVE_INFINITY : durationMs(wait, 0, Number.MAX_SAFE_INTEGER)
    const signals = new Signals()
    try {
      const held = await acquired(db, name, { ttlMs, waitMs }, signals, note)
      process.exitCode =
        held === undefined ? signals.exitCode : await runHolding(held, graceMs, command, args, signals, note)
    } finally {
      signals.close()
    }
    return undefined // The end of the connection releases the lease.
  },
})

/** Signals of this process, which are for the command. */
class Signals {
  exitCode = 0
  pass: (signal: NodeJS.Signals) => void = () => {}
  readonly #listener = (signal: NodeJS.Signals): void => {
    this.exitCode = exitCodeOf(null, signal)
    this.pass(signal)
  }

  constructor() {
    for (const signal of PASSED) process.on(signal, this.#listener)
  }

  close(): void {
    for (const signal of PASSED) process.off(signal, this.#listener)
  }
}

/** @returns undefined when a signal has ended the wait. */
async function acquired(
  db: Call['db'],
  name: string,
  options: { readonly ttlMs: number; readonly waitMs: number },
  signals: Signals,
  note: Call['note'],
): Promise<Lease | undefined> {
  const stop = new AbortController()
  // With this code the client gives back a lease that was granted meanwhile.
  signals.pass = (signal) => stop.abort(new KvError('deadline_exceeded', `ended by ${signal}`, {}))
  const noted = setTimeout(() => note(`waiting for the lease ${name}`), WAIT_NOTED_MS)
  try {
    return await db.lease(name, { ...options, signal: stop.signal })
  } catch (error) {
    if (stop.signal.aborted) return undefined
    throw error
  } finally {
    clearTimeout(noted)
  }
}

/** @returns the exit code. */
async function runHolding(
  held: Lease,
  graceMs: number,
  command: string,
  args: readonly string[],
  signals: Signals,
  note: Call['note'],
): Promise<number> {
  // A command that may read the terminal stays in its group. Another one gets its own, and so is ended with all that it has started.
  const isOfTerminal = process.stdin.isTTY === true
  const env = { ...process.env, PERKV_LEASE: held.name, PERKV_FENCE: String(held.fence) }
  // It listens before the command runs, but acts only after this function has begun to wait.
  const pauses = isOfTerminal
    ? undefined
    : new Pauses(
        (signal) => kill(signal),
        () => watch.check(),
      )
  const child = spawn(command, args, { stdio: 'inherit', detached: !isOfTerminal, env })
  const kill = (signal: NodeJS.Signals): void => killed(child, signal, !isOfTerminal)
  signals.pass = (signal) => {
    const isGiven = isOfTerminal && (signal === 'SIGINT' || signal === 'SIGQUIT') // The terminal gives them to the whole group.
    if (!isGiven) kill(signal)
  }
  const watch = new LossWatch(held, graceMs, kill, note)
  try {
    const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null]
    // It may have left processes running, which rely on the lease as it did.
    if (!isOfTerminal && !watch.isEnding) while (await isRunning(child.pid)) await sleep(LEFT_RUNNING_MS)
    if (!watch.isEnding) return exitCodeOf(code, signal)
    kill('SIGKILL') // What the command has left running.
    return exitCodeOf(code, signal) || 1
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    note(`${shownText(command)} cannot be run: ${error instanceof Error ? error.message : error}`)
    return code === 'ENOENT' ? EXIT_NOT_FOUND : EXIT_NOT_RUN
  } finally {
    pauses?.close()
    watch.close()
  }
}

/** Ctrl-Z and `fg` do not reach a command with a group of its own: without this it would run on while nothing renews the lease. */
class Pauses {
  readonly #onStop: () => void
  readonly #onContinue: () => void

  constructor(kill: (signal: NodeJS.Signals) => void, check: () => void) {
    this.#onStop = () => {
      kill('SIGSTOP')
      process.kill(process.pid, 'SIGSTOP')
    }
    this.#onContinue = () => {
      check() // A SIGTERM that comes of it is there before the command goes on.
      kill('SIGCONT')
    }
    process.on('SIGTSTP', this.#onStop).on('SIGCONT', this.#onContinue)
  }

  close(): void {
    process.off('SIGTSTP', this.#onStop).off('SIGCONT', this.#onContinue)
  }
}

/** Whether a process of the group runs that this program may signal. Zombies do not count: not every process 1 waits for them. */
async function isRunning(group: number | undefined): Promise<boolean> {
  if (group === undefined) return false
  try {
    process.kill(-group, 0)
  } catch {
    return false
  }
  const ids = await readdir('/proc').catch(() => undefined)
  if (ids === undefined) return true // Not Linux.
  for (const id of ids) {
    if (!/^\d+$/.test(id)) continue
    const stat = await readFile(`/proc/${id}/stat`, 'utf8').catch(() => '')
    const [, state = 'X', of] = /.*\) (\S) \d+ (\d+) /s.exec(stat) ?? []
    if (Number(of) === group && !'ZX'.includes(state)) return true
  }
  return false
}

function killed(child: ChildProcess, signal: NodeJS.Signals, isGroup: boolean): void {
  if (child.pid === undefined) return
  try {
    process.kill(isGroup ? -child.pid : child.pid, signal)
  } catch {} // It has ended.
}

/** Ends a command so early that it is gone when another holder may be granted the lease. */
class LossWatch {
  isEnding = false
  readonly #held: Lease
  readonly #graceMs: number
  readonly #kill: (signal: NodeJS.Signals) => void
  readonly #note: Call['note']
  #timer: NodeJS.Timeout | undefined

  constructor(held: Lease, graceMs: number, kill: (signal: NodeJS.Signals) => void, note: Call['note']) {
    this.#held = held
    this.#graceMs = graceMs
    this.#kill = kill
    this.#note = note
    held.signal.addEventListener('abort', this.check)
    this.check()
  }

  close(): void {
    this.#held.signal.removeEventListener('abort', this.check)
    clearTimeout(this.#timer)
  }

  /** The lease is renewed meanwhile, so its end moves. */
  readonly check = (): void => {
    if (this.isEnding) return
    const { leftMs } = this.#held
    if (leftMs > this.#graceMs) {
      clearTimeout(this.#timer)
      this.#timer = setTimeout(this.check, leftMs - this.#graceMs)
      return
    }
    this.isEnding = true
    const { aborted, reason } = this.#held.signal
    const why =
      aborted && reason instanceof Error ? reason.message : `the lease ${this.#held.name} could not be renewed`
    this.#note(`${why}: the command is ended`)
    this.#kill('SIGTERM')
    this.#timer = setTimeout(() => this.#kill('SIGKILL'), leftMs > 0 ? leftMs : this.#graceMs)
  }
}

/** As shells have it. */
function exitCodeOf(code: number | null, signal: NodeJS.Signals | null): number {
  return code ?? 128 + (signal === null ? 0 : constants.signals[signal])
}
