import type { Dialogue } from './dialogue.js'

/**
 * The smallest dialogue found that still fails: fewer segments, then fewer bytes in them.
 * @param fails runs a dialogue.
 */
export async function shrunk(dialogue: Dialogue, fails: (dialogue: Dialogue) => Promise<boolean>): Promise<Dialogue> {
  let smallest = dialogue
  const attempt = async (segments: readonly Buffer[], rest: Partial<Dialogue> = {}): Promise<boolean> => {
    const smaller = { ...smallest, ...rest, segments: segments.filter(({ length }) => length > 0) }
    if (!(await fails(smaller))) return false
    smallest = smaller
    return true
  }

  await attempt(smallest.segments, { end: 'half-close' })
  // Requests for one key wait for each other in segments of their own.
  if (dialogue.pacing !== 'quiet') await attempt([Buffer.concat(smallest.segments)])
  for (let isSmaller = true; isSmaller; ) {
    isSmaller = false
    for (let i = smallest.segments.length - 1; i >= 0; i--) {
      isSmaller ||= await attempt(smallest.segments.toSpliced(i, 1))
      const segment = smallest.segments[i]
      if (segment === undefined) continue
      for (let size = segment.length >> 1; size > 0; size >>= 1)
        for (let at = 0; at < (smallest.segments[i]?.length ?? 0); ) {
          const bytes = smallest.segments[i] as Buffer
          const without = Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + size)])
          if (await attempt(smallest.segments.with(i, without))) isSmaller = true
          else at += size
        }
    }
  }
  return smallest
}
