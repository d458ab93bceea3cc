import type { JSX } from 'preact'
import type { Wait } from './answers.js'
import { Empty, Scroll } from './parts.js'
import { timeOf } from './readable-time.js'
import { preview } from './wire-bytes.js'

/** Transactions in the picture; the table below lists all. */
const NODES_MAX = 40
const NODE = { width: 150, height: 34 }
const GAP = { x: 130, y: 14 }

interface Node {
  readonly txn: number
  readonly x: number
  readonly y: number
}

/**
 * Columns from the left: transactions that do not wait, those that wait for them, and so on. There are no cycles: a wait that
 * closes one is refused.
 */
function placed(waits: readonly Wait[]): ReadonlyMap<number, Node> {
  const holders = new Map<number, number[]>()
  for (const { txn, wait_for_txn } of waits) {
    holders.set(wait_for_txn, holders.get(wait_for_txn) ?? [])
    holders.set(txn, [...(holders.get(txn) ?? []), wait_for_txn])
  }
  const depths = new Map<number, number>()
  const depthOf = (txn: number, above: ReadonlySet<number>): number => {
    const known = depths.get(txn)
    if (known !== undefined || above.has(txn)) return known ?? 0
    const below = new Set([...above, txn])
    const depth = Math.max(-1, ...(holders.get(txn) ?? []).map((holder) => depthOf(holder, below))) + 1
    depths.set(txn, depth)
    return depth
  }
  const heights: number[] = []
  const nodes = new Map<number, Node>()
  for (const txn of [...holders.keys()].slice(0, NODES_MAX)) {
    const depth = depthOf(txn, new Set())
    const row = heights[depth] ?? 0
    heights[depth] = row + 1
    nodes.set(txn, { txn, x: depth * (NODE.width + GAP.x), y: row * (NODE.height + GAP.y) })
  }
  return nodes
}

export function WaitGraph({ waits }: { readonly waits: readonly Wait[] }): JSX.Element {
  if (waits.length === 0) return <Empty>No transaction waits for another one’s pessimistic lock.</Empty>
  const nodes = placed(waits)
  const all = [...nodes.values()]
  const width = Math.max(...all.map(({ x }) => x)) + NODE.width + 2
  const height = Math.max(...all.map(({ y }) => y)) + NODE.height + 2
  const sentences = waits
    .slice(0, NODES_MAX)
    .map(({ txn, wait_for_txn, key }) => `${txn} waits for ${wait_for_txn} at ${preview(key, 40)}`)
  return (
    <Scroll label="Who waits for whom">
      <svg
        class="graph"
        width={width}
        height={height}
        viewBox={`-1 -1 ${width} ${height}`}
        role="img"
        aria-label={sentences.join('; ')}
      >
        <defs>
          <marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">
            <path d="M0 0 8 4 0 8z" />
          </marker>
        </defs>
        {waits.map((wait) => {
          const from = nodes.get(wait.txn)
          const to = nodes.get(wait.wait_for_txn)
          if (from === undefined || to === undefined) return null
          return <Edge key={JSON.stringify(wait)} from={from} to={to} label={preview(wait.key, 14)} />
        })}
        {all.map(({ txn, x, y }) => (
          <g key={txn} transform={`translate(${x} ${y})`}>
            <rect width={NODE.width} height={NODE.height} rx="6" />
            <text x="10" y="15">
              {timeOf(txn) ?? `start_ts ${txn}`}
            </text>
            <text x="10" y="28" class="number">
              {txn}
            </text>
          </g>
        ))}
      </svg>
    </Scroll>
  )
}

function Edge({ from, to, label }: { readonly from: Node; readonly to: Node; readonly label: string }): JSX.Element {
  const start = { x: from.x, y: from.y + NODE.height / 2 }
  const end = { x: to.x + NODE.width + 2, y: to.y + NODE.height / 2 }
  const middle = (start.x + end.x) / 2
  return (
    <g class="edge">
      <path
        d={`M${start.x} ${start.y}C${middle} ${start.y} ${middle} ${end.y} ${end.x} ${end.y}`}
        marker-end="url(#tip)"
      />
      <text x={start.x - 8} y={end.y < start.y ? start.y + 13 : start.y - 5} text-anchor="end">
        {label}
      </text>
    </g>
  )
}
