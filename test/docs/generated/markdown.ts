const LINE_MAX = 130

/** Paragraphs and lists, in lines of at most 130 characters. */
export function wrapped(text: string): string {
  return text.split('\n').map(wrappedLine).join('\n')
}

function wrappedLine(line: string): string {
  const indent = line.startsWith('- ') ? '  ' : ''
  const lines: string[] = []
  // A line that began with such a word would be a heading or an item of a list.
  for (const word of line.match(/\S+(?: (?:[-+*#>]|\d+[.)])(?= |$))*/g) ?? []) {
    const last = lines.at(-1)
    if (last !== undefined && last.length + 1 + word.length <= LINE_MAX) lines[lines.length - 1] = `${last} ${word}`
    else lines.push(lines.length === 0 ? word : indent + word)
  }
  return lines.join('\n')
}

/** In columns, as biome formats it. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, ...rows].map((cells) => cells.map((cell) => cell.replaceAll('|', '\\|')))
  const widths = head.map((_, column) => Math.max(3, ...lines.map((cells) => cells[column]?.length ?? 0)))
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`
  const [first = '', ...others] = lines.map((cells) => line(cells.map((cell, i) => cell.padEnd(widths[i] ?? 0))))
  return [first, line(widths.map((width) => '-'.repeat(width))), ...others].join('\n')
}

export const code = (text: string): string => `\`${text}\``

/** A text of the source, in which files and flags stand as they are. */
export function linked(text: string): string {
  return text
    .replace(/\b(?:docs\/|(?=src\/))([\w./-]+\.md)(#[\w-]+)?/g, (_, path: string, anchor = '') => {
      const to = path.startsWith('src/') ? `../${path}` : path
      return `[${path}](${to}${anchor})`
    })
    .replace(/(?<![`\w-])--[a-z][a-z-]+/g, '`$&`')
    .replaceAll('_*', '_\\*')
}
