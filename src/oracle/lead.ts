/** A server that has resigned because nobody reached it holds back for this long. */
const HELD_BACK_MS = 60_000
/** A lead that nobody else has taken within this time is taken by a server that the others do not reach. */
const FREE_MS = 10_000
/**
 * Such a server leads for this long, whatever the others say: where no server reaches another one, the next leader would be of no
 * more use to them, and each change costs all of them timestamps.
 */
export const LAST_RESORT_MS = 600_000

/** A server whose clock is further from the time of the others than this leaves the lead to them. */
export const FAR_MS = 10_000
/**
 * After this long it leads all the same: the time of the servers goes on from where it was, and only approaches its clock. The
 * further the clock is, the longer it waits, so that the least wrong server leads.
 */
const FAR_WAIT_MS = 5000
const FAR_WAIT_MS_PER_DOUBLING = 400
const FAR_WAIT_MORE_MS_MAX = 4000
/** As long as it takes to see whether the others are alive at all. */
const LOOK_MS = 5000

/** What another server, which is not known to be dead, has written into its row. */
export interface OtherServer {
  /** Its row was seen to change. */
  readonly isAlive: boolean
  /** It goes by the time of a leader, so the mark has moved while it ran. */
  readonly knowsTime: boolean
  /** Epoch of the leader that it cannot reach; 0: none. */
  readonly unreachedEpoch: number
}

/**
 * Whether a leader is of no use to the others: a majority of the living ones cannot reach it, so it had better resign. A server
 * that has just died counts until it is forgotten, which may delay this.
 */
export function isUnreachable(epoch: number, others: readonly OtherServer[]): boolean {
  return others.filter(({ unreachedEpoch }) => unreachedEpoch === epoch).length * 2 > others.length
}

export interface Resigned {
  /** Since this server has resigned. */
  readonly agoMs: number
  /** For how long the row has not changed. */
  readonly silentMs: number
  readonly others: readonly OtherServer[]
}

/** Whether a server that nobody reached leaves the lead to the others. */
export function isHeldBack({ agoMs, silentMs, others }: Resigned): boolean {
  return agoMs < HELD_BACK_MS && silentMs < FREE_MS && others.length > 0
}

/** Whether a server that takes over leads only because nobody else has taken the lead within `FREE_MS`. */
export function isLastResort(isReached: boolean | undefined, { agoMs, others }: Omit<Resigned, 'silentMs'>): boolean {
  return isReached === false || isHeldBack({ agoMs, silentMs: 0, others })
}

export interface Proof {
  /** Whether another server reaches this one; undefined: no other one is there to tell. */
  readonly isReached: boolean | undefined
  /** For how long the lead has been free. */
  readonly freeMs: number
}

/** Whether a candidate may lead as far as the others reach it: they do, are not there, or nobody else leads. */
export function isProved({ isReached, freeMs }: Proof): boolean {
  return isReached !== false || freeMs >= FREE_MS
}

export interface Candidate {
  /** The server's clock less the time of the others, as far as it is known. */
  readonly clockOffMs: number
  readonly others: readonly OtherServer[]
}

/** How long a candidate leaves a lead that is free to the others, because its clock is far from theirs. */
export function patienceMs({ clockOffMs, others }: Candidate): number {
  const far = Math.abs(clockOffMs) / FAR_MS
  if (far <= 1 || !others.some(({ knowsTime }) => knowsTime)) return 0
  if (!isTimeKnown(others)) return LOOK_MS
  return FAR_WAIT_MS + Math.min(FAR_WAIT_MORE_MS_MAX, FAR_WAIT_MS_PER_DOUBLING * Math.log2(far))
}

/** Whether the time of the servers runs on, so that whoever leads next goes on from there. Otherwise all of them were down. */
export function isTimeKnown(others: readonly OtherServer[]): boolean {
  return others.some(({ isAlive, knowsTime }) => isAlive && knowsTime)
}
