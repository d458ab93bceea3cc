import { mkdir, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type ServerProcess, startProcess } from '../process/server-process.js'
import { type ConsoleBlock, type ConsoleCommand, consoleBlocks, type Marker } from './console-blocks.js'
import { Likeness } from './likeness.js'
import { Shell } from './shell.js'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Of the first server of a document; the second has the next one. */
const PORT = 7400
const ADDRESS = /http:\/\/(localhost|127\.0\.0\.1):(740[01])/g

/** A command of a document as it went. */
export interface Printed {
  readonly block: ConsoleBlock
  readonly command: ConsoleCommand
  /** In the values of the document, as far as the two are alike. */
  readonly actual: readonly string[]
}

export interface DocumentRun {
  readonly printed: readonly Printed[]
  readonly excluded: readonly { readonly line: number; readonly reason: string }[]
}

/** Runs the console blocks of a document in order, in one shell, against servers of its own. */
export async function runDocument(text: string, directory: string): Promise<DocumentRun> {
  const blocks = consoleBlocks(text)
  const scratch = join(directory, 'scratch')
  const home = join(directory, 'home')
  await Promise.all([mkdir(scratch, { recursive: true }), mkdir(home, { recursive: true })])
  await symlink(join(ROOT, 'docs'), join(home, 'docs'))
  const servers = new Servers(home)
  const shell = new Shell(home, scratch)
  const likeness = new Likeness()
  const printed: Printed[] = []
  const excluded: { line: number; reason: string }[] = []
  try {
    for (const block of blocks) {
      const not = block.markers.find((marker) => marker.kind === 'not')
      if (not !== undefined) {
        excluded.push({ line: block.line, reason: not.reason })
        continue
      }
      if (servers.urls.length === 0) await servers.start(0, [])
      for (const marker of block.markers) await setUp(marker, servers, shell)
      await shell.useServers(servers.urls)
      const vary = block.markers.flatMap((marker) => (marker.kind === 'vary' ? [marker.pattern] : []))
      const stream = block.markers.find((marker) => marker.kind === 'stream')
      for (const command of block.commands) {
        const isStream = stream !== undefined && command === block.commands.at(-1)
        const line = servers.inThisRun(likeness.inThisRun(command.command))
        const output = isStream
          ? await shell.stream(line, command.shown.length, stream.meanwhile)
          : await shell.run(line)
        const lines = linesOf(servers.asDocumented(output, command), command.shown)
        const actual = isStream ? lines.slice(0, command.shown.length) : lines
        printed.push({ block, command, actual: likeness.express(command.shown, actual, vary) })
      }
    }
  } finally {
    await shell.close()
    await servers.stop()
  }
  return { printed, excluded }
}

async function setUp(marker: Marker, servers: Servers, shell: Shell): Promise<void> {
  if (marker.kind === 'server') await servers.start(0, marker.flags)
  else if (marker.kind === 'second server') await servers.start(1, marker.flags)
  else if (marker.kind === 'no server') await servers.stop()
  else if (marker.kind === 'hidden command') {
    await shell.useServers(servers.urls)
    await shell.run(marker.command)
  }
}

/** What a terminal shows, without the header lines that the document leaves out. */
function linesOf(output: string, shown: readonly string[]): string[] {
  const lines = output.replaceAll('\r\n', '\n').split('\n')
  while (lines.at(-1) === '' && lines.length > Math.max(1, shown.length)) lines.pop()
  if (lines.length === 1 && lines[0] === '') return []
  if (!/^HTTP\/1\.1 \d+/.test(shown[0] ?? '')) return lines
  const end = lines.includes('') ? lines.indexOf('') : lines.length
  const nameOf = (line: string): string => line.split(':')[0] ?? ''
  const names = new Set(shown.map(nameOf))
  return lines.filter((line, i) => i === 0 || i >= end || names.has(nameOf(line)))
}

/** The servers that a document calls localhost:7400 and localhost:7401. */
class Servers {
  private readonly running: (ServerProcess | undefined)[] = []
  private started = 0

  constructor(private readonly home: string) {}

  get urls(): (string | undefined)[] {
    return this.running.map((server) => server?.url)
  }

  /** A fresh one; its data are in ./data for the first, ./data2 for the second, and so on. */
  async start(at: 0 | 1, flags: readonly string[]): Promise<void> {
    await this.running[at]?.stop('SIGTERM')
    this.started++
    const data = join(this.home, this.started === 1 ? 'data' : `data${this.started}`)
    const found = flags.map((flag) => (flag.startsWith('./') ? join(this.home, flag) : flag))
    this.running[at] = await startProcess(data, found)
  }

  async stop(): Promise<void> {
    await Promise.all(this.running.map((server) => server?.stop('SIGTERM')))
    this.running.fill(undefined)
  }

  /** curl finds the servers itself. */
  inThisRun(command: string): string {
    if (/\bcurl\b/.test(command)) return command
    return command.replaceAll(ADDRESS, (address, _, port) => this.urls[Number(port) - PORT] ?? address)
  }

  asDocumented(output: string, { command, shown }: ConsoleCommand): string {
    const addresses = [...[command, ...shown].join('\n').matchAll(ADDRESS)]
    return this.urls.reduce<string>((text, url, i) => {
      const address = addresses.find(([, , port]) => Number(port) === PORT + i)?.[0]
      return url === undefined ? text : text.replaceAll(url, address ?? `http://127.0.0.1:${PORT + i}`)
    }, output)
  }
}
