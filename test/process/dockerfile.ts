/** The instructions of a Dockerfile that ours uses. */

export interface Stage {
  readonly name: string | undefined
  readonly image: string
  readonly instructions: readonly Instruction[]
}

interface Instruction {
  readonly name: string
  /** `--from=build` and the like. */
  readonly flags: ReadonlyMap<string, string>
  /** The rest of the instruction, without line breaks. */
  readonly text: string
}

/** @throws Error for text before the first FROM. */
export function parseDockerfile(text: string): readonly Stage[] {
  const lines = text.replace(/^\s*#.*\n/gm, '').replace(/\\\n/g, ' ')
  const stages: { name: string | undefined; image: string; instructions: Instruction[] }[] = []
  for (const line of lines.split('\n').filter((line) => line.trim() !== '')) {
    const [, name = '', rest = ''] = /^(\w+)\s+(.*)$/.exec(line.trim()) ?? []
    const [, image, as] = name === 'FROM' ? (/^(\S+)(?: AS (\S+))?$/.exec(rest) ?? []) : []
    if (image !== undefined) {
      stages.push({ name: as, image, instructions: [] })
      continue
    }
    const stage = stages.at(-1)
    if (stage === undefined) throw new Error(`${line} stands before the first FROM`)
    const given = /^(?:--\S+\s+)*/.exec(rest)?.[0] ?? ''
    const flags = new Map([...given.matchAll(/--([\w-]+)=(\S+)/g)].map(([, flag = '', value = '']) => [flag, value]))
    stage.instructions.push({ name, flags, text: rest.slice(given.length).trim() })
  }
  return stages
}
