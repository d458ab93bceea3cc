// A part of a document that a program writes.
import { readFileSync, writeFileSync } from 'node:fs'

const BEGIN = '<!-- Written by `npm run bench -- --markdown`: -->\n'
const END = '\n<!-- Until here. -->'

/** @returns the part between the marks. @throws unless the document has them: before anything is measured for it. */
export function marked(file) {
  const parts = () => {
    const [before, rest] = readFileSync(file, 'utf8').split(BEGIN)
    const [, after] = rest?.split(END) ?? []
    if (after === undefined) throw new Error(`${file} has no marks ${BEGIN.trim()} and ${END.trim()}`)
    return { before, after }
  }
  parts()
  return {
    replace(text) {
      const { before, after } = parts()
      writeFileSync(file, `${before}${BEGIN}\n${text}\n${END}${after}`)
    },
  }
}
