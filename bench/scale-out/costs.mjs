// Every figure that the simulation takes, and where it is from.

/** Google: a node on SSD, rows of 1 KB. https://cloud.google.com/bigtable/docs/performance */
export const DOCUMENTED = { rowReadsPerSecond: 17_000, rowWritesPerSecond: 14_000 }

/**
 * Nobody has measured these. 6 ms stood in an older text of the page above, for a read or a write at full load; the tail is a guess, and so is
 * the way from server to server in one zone.
 */
export const ASSUMED = { medianMs: 6, p99Ms: 25, hopMs: 0.25 }

/** Peng and Dabek, OSDI 2010: sections 2.3 and 2.5, figure 8. */
export const PAPER = {
  timestampsPerSecond: 2_000_000,
  operationsPerDocument: 50,
  readsPerSecond: { bigtable: 15_513, percolator: 14_590 },
  writesPerSecond: { bigtable: 31_003, percolator: 7_232 },
}

/** Of a timestamp's 53 bits 11 count within a millisecond: more than that run ahead of the clock. */
export const TIMESTAMPS_PER_SECOND = 2048 * 1000

/** @param measured by `measure.mjs` */
export function costsOf({ oracle, server }, { medianMs, p99Ms, hopMs } = ASSUMED) {
  return {
    latency: { medianMs, p99Ms },
    hopMs,
    readMs: 1000 / DOCUMENTED.rowReadsPerSecond,
    writeMs: 1000 / DOCUMENTED.rowWritesPerSecond,
    askMs: oracle.askMicros / 1000,
    batchMs: oracle.batchMicros / 1000,
    cpuMs: Object.fromEntries(Object.entries(server).map(([kind, micros]) => [kind, micros / 1000])),
  }
}
