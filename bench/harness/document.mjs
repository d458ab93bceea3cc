import { readFileSync, writeFileSync } from 'node:fs'

const END = '\n<!-- Until here. -->'
const beginOf = (part) => `<!-- Written by \`npm run bench -- ${part} --markdown\`: -->\n`

/** A document with parts between marks, which a group of scenarios writes; the circumstances are the part `all`. */
export class Document {
  #file
  #text

  /** @throws unless the document has a part for each of the groups: before anything is measured for it. */
  constructor(file, groups) {
    this.#file = file
    this.#text = readFileSync(file, 'utf8')
    for (const group of groups)
      if (this.#split(group) === undefined)
        throw new Error(`${file} has no marks ${beginOf(group).trim()} and ${END.trim()}`)
  }

  /** Does nothing where the document has no such part, or nothing is known for it. */
  replace(part, text) {
    const around = this.#split(part)
    if (around === undefined || text === '') return
    this.#text = `${around.before}${beginOf(part)}\n${text}\n${around.after}`
    writeFileSync(this.#file, this.#text)
  }

  #split(part) {
    const at = this.#text.indexOf(beginOf(part))
    const end = this.#text.indexOf(END, at)
    return at === -1 || end === -1 ? undefined : { before: this.#text.slice(0, at), after: this.#text.slice(end) }
  }
}
