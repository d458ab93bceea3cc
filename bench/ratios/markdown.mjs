// What was measured as a table in Markdown: a line for each ratio.
import { ratesOf } from './measure.mjs'
import { floorOf, hundredths, spreadOf, whole } from './table.mjs'

const line = (cells) => `| ${cells.join(' | ')} |`

export const markdownHead = [
  line(['Work', 'PerKV', 'Beside', 'Ratio', 'Spread', 'Floor', 'Held']),
  line(['---', '---:', '---:', '---:', '---:', '---:', '---']),
].join('\n')

export const markdownOf = ({ name, unit, results, ratios }) =>
  ratios
    .map((ratio) => {
      const measured = [ratio.of, ratio.over].map(
        (contender) => `${contender}: ${whole(ratesOf(results[contender]).median)}`,
      )
      const judged = ratio.attained === undefined ? ['', ''] : [floorOf(ratio), ratio.attained >= 1 ? 'yes' : 'no']
      const cells = [...measured, hundredths(ratio.median), spreadOf(ratio, hundredths), ...judged]
      return line([`\`${name}\`, ${unit} per second`, ...cells])
    })
    .join('\n')
