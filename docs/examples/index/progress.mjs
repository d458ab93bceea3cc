/**
 * A live bar on a terminal, otherwise a line at each quarter.
 * @param {number} total
 * @returns a function of how many are done, and a note about what is going on
 */
export function progressBar(total) {
  const startedAt = performance.now()
  let quarters = 0
  return (/** @type {number} */ done, /** @type {string} */ note) => {
    const share = total === 0 ? 1 : done / total
    const perSecond = Math.round((done * 1000) / (performance.now() - startedAt))
    const numbers = `${`${Math.floor(share * 100)} %`.padStart(5)}  ${done} of ${total}  ${perSecond}/s  ${note}`
    if (process.stdout.isTTY) {
      const filled = Math.round(share * 30)
      process.stdout.write(`\r\x1b[K  [${'#'.repeat(filled)}${'.'.repeat(30 - filled)}] ${numbers}`)
      if (done === total) process.stdout.write('\r\x1b[K')
    } else if (Math.floor(share * 4) > quarters) {
      quarters = Math.floor(share * 4)
      process.stdout.write(`  ${numbers}\n`)
    }
  }
}
