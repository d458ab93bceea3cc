import type { Family, Labels } from './family.js'

export const TEXT_FORMAT = 'text/plain; version=0.0.4; charset=utf-8'

/** Yields lines without line ends. A family without samples has its two comments. */
export function* linesOf({ name, help, type, values }: Family): Generator<string, void> {
  yield `# HELP ${name} ${escaped(help)}`
  yield `# TYPE ${name} ${type}`
  for (const { metricName = name, labels, value } of values) yield `${metricName}${labelsText(labels)} ${value}`
}

function labelsText(labels: Labels): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escaped(`${value}`).replaceAll('"', '\\"')}"`)
  return pairs.length === 0 ? '' : `{${pairs.join()}}`
}

function escaped(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
}
