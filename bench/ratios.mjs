// npm run bench [-- --quick --only NAME[,NAME] --rounds N --seconds N --connections N --markdown --json FILE --svg FILE]
// PerKV beside its peers on this machine, in turn: medians, their ratios, and the spread of both. The data is in the
// directory for temporary files (TMPDIR), which has to be on a real disk for the durable works to mean anything.
import { writeFile } from 'node:fs/promises'
import { markdownHead, markdownOf } from './ratios/markdown.mjs'
import { measure, ratiosOf } from './ratios/measure.mjs'
import { optionsOf } from './ratios/options.mjs'
import { pictureOf } from './ratios/picture.mjs'
import { Stage } from './ratios/stage.mjs'
import { tableOf, verdictOf } from './ratios/table.mjs'

const options = optionsOf(process.argv.slice(2))
const { rounds, seconds, connections, sizes, quick, markdown } = options
/** With --markdown nothing but its table goes to stdout. */
const say = markdown ? console.error : console.log

async function run({ name, unit, ratios, contenders }) {
  try {
    const stage = new Stage(options)
    const running = await contenders(stage)
    const results = await measure(running, options)
    await stage.close()
    return { name, unit, contenders: Object.keys(running), results, ratios: ratiosOf(results, ratios) }
  } catch (cause) {
    throw new Error(`${name} could not be measured`, { cause })
  }
}

say(`${connections} connections, ${rounds} rounds of ${seconds} s each, in turn; 100-byte values\n`)
if (markdown) console.log(markdownHead)
const reports = []
for (const work of options.chosen) {
  const report = await run(work)
  console.log(markdown ? markdownOf(report) : tableOf(report))
  reports.push(report)
}

const below = reports.flatMap(({ name, ratios }) =>
  ratios
    .filter(({ attained }) => attained < 1)
    .map((ratio) => ({ ...ratio, line: `${name}: ${ratio.of} / ${ratio.over} ${verdictOf(ratio)}` })),
)
say(below.length === 0 ? 'All floors hold.' : below.map(({ line }) => line).join('\n'))
if (options.json !== undefined) {
  const measured = reports.map(({ contenders: _, ...report }) => report)
  const settings = { rounds, seconds, connections, quick, sizes }
  await writeFile(
    options.json,
    `${JSON.stringify({ options: settings, node: process.version, works: measured }, null, 2)}\n`,
  )
}
if (options.svg !== undefined) await writeFile(options.svg, pictureOf(reports))
if (below.length > 0) process.exitCode = 1
