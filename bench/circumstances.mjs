// Which machine and which programs measured: a number without them says nothing.
import { readFileSync } from 'node:fs'
import { availableParallelism, cpus, loadavg, platform, release, totalmem } from 'node:os'

/** Of the last minute: what else the machine had to do. */
const loadBefore = loadavg()[0]

/** @param script which the arguments of this process were given to. */
export function circumstances(script) {
  const manifest = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
  return {
    date: new Date().toISOString(),
    command: `node ${script} ${process.argv.slice(2).join(' ')}`.trim(),
    perkv: manifest.version,
    node: process.version,
    machine: {
      cpu: cpus()[0]?.model.trim(),
      cores: availableParallelism(),
      memory_gib: Number((totalmem() / 2 ** 30).toFixed(1)),
      system: `${platform()} ${release()}`,
      load_before: loadBefore,
    },
  }
}
