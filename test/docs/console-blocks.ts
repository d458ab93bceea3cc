import { spawnSync } from 'node:child_process'

/** One `$ ` line of a console block, with the lines that continue it and the lines shown below it. */
export interface ConsoleCommand {
  /** Of the document, from 1. */
  readonly line: number
  readonly command: string
  readonly shown: readonly string[]
  /** Line of the document at which `shown` begins, from 0. */
  readonly shownAt: number
}

/** A comment `<!-- run: ... -->` above a block. */
export type Marker =
  | { readonly kind: 'not'; readonly reason: string }
  | { readonly kind: 'server' | 'second server'; readonly flags: readonly string[] }
  | { readonly kind: 'no server' }
  | { readonly kind: 'hidden command'; readonly command: string }
  | { readonly kind: 'stream'; readonly meanwhile: string | undefined }
  | { readonly kind: 'vary'; readonly pattern: RegExp }

export interface ConsoleBlock {
  /** Of the fence, from 1. */
  readonly line: number
  readonly markers: readonly Marker[]
  readonly commands: readonly ConsoleCommand[]
}

const MARKERS: readonly (readonly [RegExp, (rest: string) => Marker])[] = [
  [/^not: (.+)$/s, (reason) => ({ kind: 'not', reason: reason.replaceAll(/\s+/g, ' ') })],
  [/^server(.*)$/s, (flags) => ({ kind: 'server', flags: words(flags) })],
  [/^second server(.*)$/s, (flags) => ({ kind: 'second server', flags: words(flags) })],
  [/^no server()$/, () => ({ kind: 'no server' })],
  [/^\$ (.+)$/s, (command) => ({ kind: 'hidden command', command })],
  [/^stream, meanwhile: (.+)$/s, (meanwhile) => ({ kind: 'stream', meanwhile })],
  [/^stream()$/, () => ({ kind: 'stream', meanwhile: undefined })],
  [/^vary: (.+)$/s, (pattern) => ({ kind: 'vary', pattern: new RegExp(pattern) })],
]

function words(text: string): string[] {
  return text.split(/\s+/).filter((word) => word !== '')
}

/** The `console` blocks of a Markdown document. @throws where a marker is unknown or belongs to no block. */
export function consoleBlocks(document: string): ConsoleBlock[] {
  const blocks: ConsoleBlock[] = []
  let markers: Marker[] = []
  const pieces = /<!--\s*run:(.*?)-->|^( *)```(\w*)\n(.*?)^\2```$/gms
  for (const { index, 0: whole, 1: marker, 3: language, 4: body = '' } of document.matchAll(pieces)) {
    if (marker !== undefined) markers.push(markerOf(marker.trim()))
    else if (language === 'console') {
      const line = document.slice(0, index).split('\n').length
      blocks.push({ line, markers, commands: commandsOf(body, line) })
      markers = []
    } else if (markers.length > 0) throw new Error(`a marker stands above a block that is not console: ${whole}`)
  }
  if (markers.length > 0) throw new Error('a marker stands below the last console block')
  return blocks
}

function markerOf(text: string): Marker {
  for (const [pattern, make] of MARKERS) {
    const rest = pattern.exec(text)?.[1]
    if (rest !== undefined) return make(rest.trim())
  }
  throw new Error(`unknown marker: ${text}`)
}

function commandsOf(body: string, fenceLine: number): ConsoleCommand[] {
  const lines = body.replace(/\n$/, '').split('\n')
  const commands: ConsoleCommand[] = []
  for (let at = 0; at < lines.length; ) {
    const first = at
    if (!lines[at]?.startsWith('$ ')) throw new Error(`line ${fenceLine + 1 + at} belongs to no command`)
    let command = lines[at++]?.slice(2) ?? ''
    while (at < lines.length && !isWhole(command)) command += `\n${lines[at++]}`
    const shownAt = at
    while (at < lines.length && !lines[at]?.startsWith('$ ')) at++
    commands.push({
      line: fenceLine + 1 + first,
      command,
      shown: lines.slice(shownAt, at),
      shownAt: fenceLine + shownAt,
    })
  }
  return commands
}

/** Whether bash would run it, and not ask for another line. */
function isWhole(command: string): boolean {
  if (command.endsWith('\\')) return false
  if (!/['"`({]|\bdo\b|\bthen\b|<</.test(command)) return true // Starting a bash for each line would take seconds.
  return spawnSync('bash', ['-n'], { input: command }).status === 0
}
