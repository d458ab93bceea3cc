// A part of a document that a program writes.
import { readFileSync, writeFileSync } from 'node:fs'

const END = '\n<!-- Until here. -->'

/**
 * @param command that writes it, which the first mark names.
 * @returns the part between the marks. @throws unless the document has them: before anything is measured for it.
 */
export function marked(file, command = 'npm run bench -- --markdown') {
  const begin = `<!-- Written by \`${command}\`: -->\n`
  const parts = () => {
    const [before, rest] = readFileSync(file, 'utf8').split(begin)
    const [, after] = rest?.split(END) ?? []
    if (after === undefined) throw new Error(`${file} has no marks ${begin.trim()} and ${END.trim()}`)
    return { before, after }
  }
  parts()
  return {
    replace(text) {
      const { before, after } = parts()
      writeFileSync(file, `${before}${begin}\n${text}\n${END}${after}`)
    },
  }
}
