// npm run bench [-- --quick --only NAME[,NAME] --rounds N --seconds N --connections N --generator wrk|autocannon
//   --markdown FILE --json FILE --svg FILE]
// PerKV beside its peers on this machine, in turn: medians, their ratios, and the spread of both. The data is in the
// directory for temporary files (TMPDIR), which has to be on a real disk for the durable works to mean anything.
import { writeFile } from 'node:fs/promises'
import { circumstances } from './circumstances.mjs'
import { fileSystem, timeFsyncs } from './ratios/disk.mjs'
import { markdownOf } from './ratios/markdown.mjs'
import { marked } from './ratios/marked.mjs'
import { isBelow, measure, ratiosOf } from './ratios/measure.mjs'
import { optionsOf } from './ratios/options.mjs'
import { pictureOf } from './ratios/picture.mjs'
import { settingOf } from './ratios/setting.mjs'
import { Stage } from './ratios/stage.mjs'
import { nameOf, tableOf, verdictOf } from './ratios/table.mjs'

const FSYNCS_PER_WORK = 50

const options = optionsOf(process.argv.slice(2))
const { rounds, seconds, connections, generator, sizes, quick } = options
const document = options.markdown === undefined ? undefined : marked(options.markdown)

/** --quick leaves out contenders whose ratios have no floor. */
function isNeeded(name, ratios) {
  return !quick || ratios.some(({ of, over, floor }) => floor !== undefined && (over === name || of.includes(name)))
}

async function run({ name, unit, ratios, contenders }) {
  try {
    const stage = new Stage(options)
    const needed = Object.entries(await contenders(stage)).filter(([contender]) => isNeeded(contender, ratios))
    const results = await measure(Object.fromEntries(needed), options)
    await stage.close()
    return {
      name,
      unit,
      contenders: needed.map(([contender]) => contender),
      results,
      ratios: ratiosOf(results, ratios),
    }
  } catch (cause) {
    throw new Error(`${name} could not be measured`, { cause })
  }
}

async function told(work) {
  const report = await run(work)
  console.log(tableOf(report))
  return report
}

const reports = []
const fsyncs = []
for (const work of options.chosen) {
  fsyncs.push(...timeFsyncs(FSYNCS_PER_WORK))
  const report = await told(work)
  // The machine may have been busy for a moment: --quick measures twice before it calls a checkout slow.
  reports.push(quick && report.ratios.some(isBelow) ? await told(work) : report)
}
fsyncs.push(...timeFsyncs(FSYNCS_PER_WORK))

const setting = {
  ...circumstances('bench/ratios.mjs'),
  disk: { file_system: fileSystem(), fsync_ms: fsyncs },
  options: { rounds, seconds, connections, generator, quick, sizes },
}
console.log(settingOf(setting))

const below = reports.flatMap(({ name, ratios }) =>
  ratios.filter(isBelow).map((ratio) => `${name}: ${nameOf(ratio)} ${verdictOf(ratio)}`),
)
console.log(below.length === 0 ? 'All floors hold.' : below.join('\n'))
document?.replace(markdownOf(setting, reports))
if (options.json !== undefined) {
  const works = reports.map(({ contenders: _, ...report }) => report)
  await writeFile(options.json, `${JSON.stringify({ ...setting, works }, null, 2)}\n`)
}
if (options.svg !== undefined) await writeFile(options.svg, pictureOf(reports))
if (below.length > 0) process.exitCode = 1
