/**
 * Least squares: `micros = asks * askMicros + batches * batchMicros`.
 * @param runs that differ in how many asks share a batch
 */
export function divided(runs) {
  const sum = (of) => runs.reduce((total, run) => total + of(run), 0)
  const [aa, ab, bb] = [sum((r) => r.asks ** 2), sum((r) => r.asks * r.batches), sum((r) => r.batches ** 2)]
  const [am, bm] = [sum((r) => r.asks * r.micros), sum((r) => r.batches * r.micros)]
  const determinant = aa * bb - ab * ab
  return { askMicros: (am * bb - bm * ab) / determinant, batchMicros: (bm * aa - am * ab) / determinant }
}
