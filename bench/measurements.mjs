import { print, write } from './scale/report.mjs'

/**
 * Runs measurements one after the other and prints their rows. The process exits with 1 when a row is beyond its floor.
 * @param {{ kind: string, source: string, measurements: object, only: string, out?: string, settingsOf: (name: string) => object }} order
 *   files are `OUT/KIND-NAME.json`, and name the program `source`.
 */
export async function measure({ kind, source, measurements, only, out, settingsOf }) {
  const names = only.split(',')
  for (const name of names)
    if (!(name in measurements)) throw new Error(`no measurement "${name}": ${Object.keys(measurements).join(', ')}`)
  const beyond = []
  for (const name of names) {
    const start = performance.now()
    const measured = await measurements[name](settingsOf(name))
    beyond.push(...measured.rows.filter(({ isBelowFloor }) => isBelowFloor).map((row) => `${row.name}: ${row.value}`))
    const rows = measured.rows.map(({ isBelowFloor: _, ...row }) => row)
    const { crossover } = measured
    print(`${name} (${Math.round((performance.now() - start) / 1000)} s)`, rows)
    if (crossover !== undefined) console.log(`crossover: ${JSON.stringify(crossover)}`)
    if (out !== undefined) await write(out, `${kind}-${name}`, { ...measured, rows }, source)
  }
  if (beyond.length === 0) return
  console.log(`\nBeyond the floor:\n${beyond.join('\n')}`)
  process.exitCode = 1
}
