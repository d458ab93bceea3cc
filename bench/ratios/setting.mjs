// Which machine measured, and how, in a sentence.
import { short } from './table.mjs'

export function settingOf({ node, machine, disk, options }) {
  const { cpu, cores, memory_gib, system, load_before } = machine
  const { rounds, seconds, connections, generator } = options
  return [
    `Measured on ${cpu}, ${cores} cores, ${Math.round(memory_gib)} GiB, ${system}, Node ${node.slice(1)}`,
    `the load average before was ${load_before.toFixed(1)}`,
    `${disk.file_system}: ${fsyncOf(disk.fsync_ms)}`,
    `${connections} connections, ${rounds} rounds of ${seconds} s each, in turn`,
    `values of 100 bytes`,
    `single requests by ${generator}.`,
  ].join('; ')
}

function fsyncOf(durations) {
  const sorted = durations.toSorted((a, b) => a - b)
  const at = (share) => short(sorted[Math.floor(sorted.length * share)])
  return `an fsync of 4 KiB took ${at(0.5)} ms at the median, ${at(0.99)} ms at the 99th percentile`
}
