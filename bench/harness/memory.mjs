const LINE = 16 // numbers of 4 bytes
const LINES = 1 << 20
const STEPS = 1 << 20

/**
 * How long a line of 64 bytes takes to come from memory: some 100 ns, and several times that where other machines on the same
 * host use its caches, which no load average tells.
 * @returns ns.
 */
export function memoryNs() {
  const order = Uint32Array.from({ length: LINES }, (_, i) => i)
  for (let i = LINES - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1))
    const swapped = order[i]
    order[i] = order[j]
    order[j] = swapped
  }
  const next = new Uint32Array(LINES * LINE)
  for (let i = 0; i < LINES; i++) next[order[i] * LINE] = order[(i + 1) % LINES] * LINE
  let at = 0
  const begin = performance.now()
  for (let i = 0; i < STEPS; i++) at = next[at]
  const ms = performance.now() - begin
  if (at === undefined) throw new Error('the walk left its lines') // Keeps the walk from being optimized away.
  return (ms * 1e6) / STEPS
}
