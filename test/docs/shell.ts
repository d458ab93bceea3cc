import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface, type Interface } from 'node:readline'
import { CLI, ENV } from '../process/server-process.js'

/** No command of a document takes so long. */
const COMMAND_MS_MAX = 90_000
/** Where documents say that servers listen, and where theirs do. */
const PORTS = [7400, 7401] as const

/** `curl` and `perkv`, with or without `npx`, reach the servers of this run at the addresses that the document has. */
const FUNCTIONS = `
exec 3>&1 >>"$terminal" 2>&1
servers=()
curl() { command curl -q --no-progress-meter "\${servers[@]}" "$@"; }
perkv() { "$node" "$cli" "$@"; }
npx() { "$@"; }
output() { tail -c +$((begins + 1)) "$terminal"; }
`

/** One bash for all commands of a document; what they print, also in the background, is collected as a terminal would show it. */
export class Shell {
  private readonly child: ChildProcess
  private readonly done: Interface
  private readonly terminal: string
  private readonly ended: Promise<never>
  private shownBytes = 0

  /** @param scratch a directory that is not that of the commands. */
  constructor(
    readonly directory: string,
    private readonly scratch: string,
  ) {
    this.terminal = join(scratch, 'terminal')
    this.child = spawn('bash', ['--noprofile', '--norc'], {
      cwd: directory,
      env: { ...ENV, LC_ALL: 'C.UTF-8', terminal: this.terminal, node: process.execPath, cli: CLI },
      stdio: ['pipe', 'pipe', 'inherit'],
      detached: true, // A group of its own, which can be ended whole.
    })
    if (this.child.stdout === null) throw new Error('bash has no stdout')
    this.done = createInterface({ input: this.child.stdout })
    this.child.stdin?.write(FUNCTIONS)
    this.ended = once(this.child, 'exit').then(() => {
      throw new Error('a command ended the shell')
    })
    this.ended.catch(() => {}) // Whoever waits for a command is told.
  }

  /** @param urls of the servers that the document calls localhost:7400 and :7401. */
  async useServers(urls: readonly (string | undefined)[]): Promise<void> {
    const connects = urls.flatMap((url, i) => {
      if (url === undefined) return []
      const to = new URL(url).host
      return ['localhost', '127.0.0.1'].map((host) => `--connect-to ${host}:${PORTS[i]}:${to}`)
    })
    await this.run(`servers=(${connects.join(' ')})
      export PERKV_SERVER=${urls[0] ?? ''}`)
  }

  /** Runs the command in the foreground. @returns all that has been printed since the last one. */
  run(command: string): Promise<string> {
    return this.send(command, (file) => `. '${file}' </dev/null`)
  }

  /** Runs a command that does not end by itself, and `meanwhile` beside it, until so many lines have come. */
  async stream(command: string, lines: number, meanwhile = ':'): Promise<string> {
    const other = join(this.scratch, 'meanwhile')
    await writeFile(other, meanwhile)
    return this.send(
      command,
      (file) => `set -m; . '${file}' </dev/null & job=$!; set +m; begins=${this.shownBytes}; . '${other}' </dev/null
        for _ in {1..200}; do [ $(output | wc -l) -ge ${lines} ] && break; sleep 0.05; done
        kill -- -$job; wait $job`,
    )
  }

  async close(): Promise<void> {
    if (this.child.exitCode !== null || this.child.pid === undefined) return
    const closed = once(this.child, 'close')
    process.kill(-this.child.pid, 'SIGKILL')
    await closed
  }

  private async send(command: string, line: (file: string) => string): Promise<string> {
    const file = join(this.scratch, 'command')
    await writeFile(file, `${command}\n`)
    const aborted = AbortSignal.timeout(COMMAND_MS_MAX)
    const done = once(this.done, 'line', { signal: aborted }).catch(() => {
      throw new Error(`the command took more than ${COMMAND_MS_MAX / 1000} s: ${command}`)
    })
    this.child.stdin?.write(`${line(file)}; echo done >&3\n`)
    await Promise.race([done, this.ended])
    const terminal = await readFile(this.terminal)
    const printed = terminal.subarray(this.shownBytes).toString()
    this.shownBytes = terminal.length
    return printed
  }
}
