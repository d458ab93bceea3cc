import { lines } from '../chart/lines.mjs'

const SHOWN = ['as today', 'leader without clients']
const NODES = { label: 'Bigtable nodes', kind: 'log10' }

/** @param levelDb what one server on LevelDB does of them per second. */
export function pictures({ transfers }, levelDb) {
  const of = (name) => transfers.filter(({ oracle }) => oracle === name)
  const curve = (rows, y) => rows.map((row) => [row.nodes, y(row)])
  const today = of('as today')
  return {
    'scale-out-transfers': lines({
      title: 'Transfers per second by Bigtable nodes, simulated',
      x: NODES,
      y: { label: 'per second', kind: 'log10' },
      y2: { label: 'p50 in ms', kind: 'log10' },
      series: [
        { name: 'transfers', points: curve(today, ({ rate }) => rate) },
        { name: 'one LevelDB server', points: today.map(({ nodes }) => [nodes, levelDb]) },
        { name: 'p50 of a transfer', points: curve(today, ({ p50 }) => p50), right: true },
      ],
    }),
    'scale-out-oracle': lines({
      title: 'A timestamp at the median by Bigtable nodes, simulated',
      x: NODES,
      y: { label: 'ms', kind: 'log10' },
      series: SHOWN.map((name) => ({ name, points: curve(of(name), ({ timestampP50 }) => timestampP50) })),
    }),
  }
}
