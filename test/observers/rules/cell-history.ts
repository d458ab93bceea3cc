import fc from 'fast-check'
import {
  type AckContext,
  type AckOutcome,
  type AckRequest,
  acknowledge,
} from '../../../src/observers/rules/acknowledge.js'
import type { Ack, MarkKind, StoredNotification } from '../../../src/observers/rules/cell.js'
import { type Marked, markCell } from '../../../src/observers/rules/mark.js'
import type { Observer } from '../../../src/observers/rules/observer.js'
import type { Timestamp } from '../../../src/timestamp.js'
import { KEY } from '../../percolator/builders.js'

/** The rules of a cell; a test of the model replaces one by a wrong one. */
export interface Rules {
  readonly acknowledge: (request: AckRequest, context: AckContext) => AckOutcome
  readonly markCell: (observer: Observer, mark: StoredNotification, present?: StoredNotification) => Marked
  /** What a mark must not hide: a change whose cell is parked is not covered either. */
  readonly uncovered: (
    notification: StoredNotification | undefined,
    parked: StoredNotification | undefined,
  ) => StoredNotification | undefined
}

export const RULES: Rules = { acknowledge, markCell, uncovered: (notification, parked) => notification ?? parked }

/** Something that happens to one cell. Numbers pick among the claims, runs and timestamps that there are. */
export type Event =
  /** One-phase commits: their commit_ts is above every timestamp handed out. */
  | { readonly on: 'put' | 'delete'; readonly depth: number }
  | { readonly on: 'prewrite' }
  | { readonly on: 'take commit_ts'; readonly isFresh: boolean; readonly pick: number }
  | { readonly on: 'commit' | 'rollback' }
  | { readonly on: 'notify'; readonly depth: number }
  | { readonly on: 'claim' }
  /** A fence that nobody was given. */
  | { readonly on: 'invent a fence'; readonly pick: number }
  /** Also before the claim that it acknowledges. */
  | { readonly on: 'begin' }
  | { readonly on: 'begin at the fence'; readonly pick: number }
  | { readonly on: 'acknowledge'; readonly claim: number; readonly run: number; readonly writesKey: boolean }
  | { readonly on: 'one-shot'; readonly claim: number; readonly writesKey: boolean }
  | { readonly on: 'repeat'; readonly pick: number }
  | { readonly on: 'collect'; readonly pick: number }
  | { readonly on: 'restart' | 'park' | 'retry' | 'skip' }

const pick = fc.nat({ max: 7 })
const depth = fc.constantFrom(0, 0, 0, 0, 0, 0, 0, 9)
const weighted = (weight: number, arbitrary: fc.Arbitrary<Event>) => ({ weight, arbitrary })
const plain = <K extends Event['on']>(on: K) => fc.constant({ on } as Event)

const event: fc.Arbitrary<Event> = fc.oneof(
  weighted(8, fc.record({ on: fc.constantFrom('put', 'put', 'delete'), depth })),
  weighted(3, plain('prewrite')),
  weighted(3, fc.record({ on: fc.constant('take commit_ts'), isFresh: fc.boolean(), pick })),
  weighted(4, plain('commit')),
  weighted(1, plain('rollback')),
  weighted(5, fc.record({ on: fc.constant('notify'), depth })),
  weighted(9, plain('claim')),
  weighted(1, fc.record({ on: fc.constant('invent a fence'), pick })),
  weighted(6, plain('begin')),
  weighted(2, fc.record({ on: fc.constant('begin at the fence'), pick })),
  weighted(10, fc.record({ on: fc.constant('acknowledge'), claim: pick, run: pick, writesKey: fc.boolean() })),
  weighted(6, fc.record({ on: fc.constant('one-shot'), claim: pick, writesKey: fc.boolean() })),
  weighted(2, fc.record({ on: fc.constant('repeat'), pick })),
  weighted(2, fc.record({ on: fc.constant('collect'), pick })),
  weighted(1, plain('restart')),
  weighted(1, plain('park')),
  weighted(1, plain('retry')),
  weighted(1, plain('skip')),
)

export const histories: fc.Arbitrary<Event[]> = fc.array(event, { minLength: 1, maxLength: 40, size: 'max' })

const OBSERVER: Observer = { id: 2, name: 'o', range: {}, maxDepth: 5 }

export class BrokenInvariant extends Error {}

/** A marked change, or a notification. */
interface Change {
  readonly ts: Timestamp
  isCovered: boolean
}

interface Committed {
  readonly startTs: Timestamp
  readonly fence: Timestamp
  readonly seen: Timestamp
  readonly commitTs: Timestamp
  readonly isOneShot: boolean
  /** Its commit stands in the row, where a repeat finds it before any rule is asked. */
  readonly writesKey: boolean
}

/**
 * One row and one cell of it, as the store keeps them, beside the set of changes that committed runs have covered. A run covers
 * every change that was marked before it and is not above the run's `seen`. Every event holds the rules to:
 *
 * - a committed run covers at least one change that no earlier run covered;
 * - it has begun, and has its claim, at or above the commit_ts of the run before;
 * - the notification stands exactly while a change is not covered, or it is parked;
 * - "repeated" is answered to a run only that has committed, with its commit_ts;
 * - a run that claims and begins now is never refused, and leaves the cell clean.
 */
export class CellHistory {
  /** What happened, a line per event. */
  readonly lines: string[] = []
  readonly #rules: Rules
  /** The last timestamp handed out. The row has a version from before the observer. */
  #now: Timestamp = OBSERVER.id
  #row: { readonly ts: Timestamp; readonly kind: MarkKind }[] = [{ ts: 1, kind: 'put' }]
  #lock: { readonly startTs: Timestamp; commitTs: Timestamp } | undefined
  #notification: StoredNotification | undefined
  #parked: StoredNotification | undefined
  #ack: Ack | undefined
  #safePoint: Timestamp = 0
  #newestFence: Timestamp = 0
  readonly #changes: Change[] = []
  readonly #fences: Timestamp[] = []
  readonly #begun: Timestamp[] = []
  readonly #committed: Committed[] = []

  constructor(rules: Rules) {
    this.#rules = rules
  }

  get runs(): number {
    return this.#committed.length
  }

  /** @throws Error with all that happened, where a rule broke an invariant. */
  run(events: readonly Event[]): void {
    for (const each of events) {
      this.#happen(each)
      this.#checkEntry()
    }
    this.#comeToRest()
  }

  #say(line: string): void {
    this.lines.push(line)
  }

  #fail(what: string): never {
    throw new BrokenInvariant(`${what}:\n${this.lines.join('\n')}`)
  }

  #happen(event: Event): unknown {
    switch (event.on) {
      case 'put':
      case 'delete':
        return this.#write(event.on, event.depth)
      case 'prewrite':
        if (this.#lock === undefined) this.#lock = { startTs: ++this.#now, commitTs: 0 }
        return
      case 'take commit_ts':
        return this.#takeCommitTs(event.isFresh, event.pick)
      case 'commit':
        return this.#commitLock()
      case 'rollback':
        this.#lock = undefined
        return
      case 'notify':
        this.#say(`notified at ${this.#now + 1}, at depth ${event.depth}`)
        return this.#mark({ changeTs: ++this.#now, kind: 'notified', depth: event.depth }, this.#present)
      case 'claim':
        if (this.#notification === undefined) return
        this.#newestFence = ++this.#now
        this.#fences.push(this.#now)
        return this.#say(`claimed under the fence ${this.#now}`)
      case 'invent a fence':
        this.#fences.push(1 + ((event.pick * 31) % this.#now))
        return this.#say(`fence ${this.#fences.at(-1)} is invented`)
      case 'begin':
        this.#begun.push(++this.#now)
        return this.#say(`a run begins at ${this.#now}`)
      case 'begin at the fence': {
        const fence = pickFrom(this.#fences, event.pick)
        const isUsed = this.#begun.includes(fence ?? 0) || this.#committed.some(({ startTs }) => startTs === fence)
        if (fence !== undefined && !isUsed) this.#begun.push(fence)
        return
      }
      case 'acknowledge': {
        const fence = pickFrom(this.#fences, event.claim)
        const startTs = pickFrom(this.#begun, event.run)
        if (fence === undefined || startTs === undefined) return
        if (this.#committed.some((run) => !run.isOneShot && run.startTs === startTs)) return
        this.#commitRun({ fence, startTs, seen: startTs, isOneShot: false, writesKey: event.writesKey })
        return
      }
      case 'one-shot': {
        const fence = pickFrom(this.#fences, event.claim)
        if (fence === undefined) return
        this.#commitRun({ fence, startTs: ++this.#now, seen: fence, isOneShot: true, writesKey: event.writesKey })
        return
      }
      case 'repeat':
        return this.#repeat(event.pick)
      case 'collect':
        return this.#collect(event.pick)
      case 'restart':
        this.#newestFence = 0
        return this.#say('restart')
      case 'park':
        if (this.#notification === undefined) return
        this.#parked = this.#notification
        this.#notification = undefined
        return this.#say('parked')
      case 'retry':
        if (this.#parked === undefined) return
        this.#notification ??= { ...this.#parked, depth: 0 }
        this.#parked = undefined
        return this.#say('retried')
      case 'skip':
        if (this.#parked === undefined || this.#notification !== undefined) return
        this.#parked = undefined
        // As a run that does nothing: whoever saw what was skipped is behind it.
        this.#ack = { ackTs: ++this.#now, commitTs: this.#now, startTs: 0 }
        for (const change of this.#changes) change.isCovered = true
        return this.#say('skipped')
    }
  }

  get #present(): StoredNotification | undefined {
    return this.#rules.uncovered(this.#notification, this.#parked)
  }

  #write(kind: 'put' | 'delete', depth: number): void {
    if (this.#lock !== undefined) return
    const changeTs = ++this.#now
    this.#say(`${kind} at ${changeTs}, at depth ${depth}`)
    this.#row.push({ ts: changeTs, kind })
    this.#mark({ changeTs, kind, depth })
  }

  /** Of two phases. Clients with timestamps of their own choose any that is above start_ts. */
  #takeCommitTs(isFresh: boolean, pick: number): void {
    if (this.#lock === undefined || this.#lock.commitTs !== 0) return
    const { startTs } = this.#lock
    const room = this.#now - startTs
    this.#lock.commitTs = isFresh || room === 0 ? ++this.#now : startTs + 1 + (pick % room)
  }

  #commitLock(): void {
    if (this.#lock === undefined || this.#lock.commitTs === 0) return
    const { startTs, commitTs: changeTs } = this.#lock
    this.#say(`put in two phases of ${startTs}, at ${changeTs}`)
    this.#row.push({ ts: changeTs, kind: 'put' })
    this.#lock = undefined
    this.#mark({ changeTs, kind: 'put', depth: 0 }, this.#present)
  }

  #mark(mark: StoredNotification, present?: StoredNotification): void {
    const marked = this.#rules.markCell(OBSERVER, mark, present)
    this.#changes.push({ ts: mark.changeTs, isCovered: false })
    if ('notification' in marked) this.#notification = marked.notification
    else {
      this.#notification = undefined
      this.#parked = marked.parked
    }
  }

  #commitRun(run: Omit<Committed, 'commitTs'>): AckOutcome['kind'] | 'conflict' {
    const { fence, startTs, seen, isOneShot, writesKey } = run
    const what = `${isOneShot ? 'one-shot' : 'run'} of ${startTs} under the fence ${fence}${writesKey ? ', which writes the key' : ''}`
    const isInTheWay = this.#lock !== undefined || this.#row.some(({ ts }) => ts > startTs)
    if (writesKey && isInTheWay) return 'conflict'
    const commitTs = ++this.#now
    const outcome = this.#decide(run, commitTs)
    this.#say(`${what}: ${describe(outcome)}`)
    if (outcome.kind === 'repeat') this.#fail('it has not committed before')
    if (outcome.kind === 'refused') return 'refused'
    const before = this.#committed.at(-1)
    if (before !== undefined && Math.min(fence, seen) < before.commitTs)
      this.#fail(`it was claimed or begun before the commit at ${before.commitTs}`)
    const covered = this.#changes.filter(({ ts, isCovered }) => !isCovered && ts <= seen)
    if (covered.length === 0) this.#fail('it covers nothing new')
    for (const change of covered) change.isCovered = true
    this.#committed.push({ ...run, commitTs })
    this.#ack = outcome.ack
    if (outcome.isClean) this.#notification = undefined
    this.#parked = undefined
    // Its own write of the key does not mark the cell.
    if (writesKey) this.#row.push({ ts: commitTs, kind: 'put' })
    return 'acknowledged'
  }

  #decide({ fence, seen, startTs }: Omit<Committed, 'commitTs'>, commitTs: Timestamp): AckOutcome {
    return this.#rules.acknowledge(
      { effect: { observer: OBSERVER.name, key: KEY, fence }, seen, startTs, commitTs },
      {
        notification: this.#notification,
        ack: this.#ack,
        safePoint: this.#safePoint,
        observedSince: OBSERVER.id,
        newestFence: this.#newestFence,
        newestSeen: () => this.#row.reduce((newest, { ts }) => (ts <= seen ? Math.max(newest, ts) : newest), 0),
      },
    )
  }

  /** A copy of a commit arrives. */
  #repeat(pick: number): void {
    const run = pickFrom(this.#committed, pick)
    if (run === undefined) return
    if (run.isOneShot) {
      const again = this.#commitRun({ ...run, startTs: ++this.#now, writesKey: false })
      if (again === 'acknowledged') this.#fail('a one-shot took effect twice')
      return
    }
    const { startTs, writesKey } = run
    if (writesKey) return
    const outcome = this.#decide(run, ++this.#now)
    this.#say(`the run of ${startTs} again: ${describe(outcome)}`)
    if (outcome.kind === 'acknowledged') this.#fail('it took effect twice')
    if (outcome.kind === 'repeat' && outcome.commitTs !== run.commitTs) this.#fail(`it committed at ${run.commitTs}`)
    if (outcome.kind === 'refused' && this.#ack?.startTs === startTs) this.#fail('it has committed, and no run since')
  }

  #collect(pick: number): void {
    const safePoint = 1 + ((pick * 31) % this.#now)
    if (safePoint <= this.#safePoint || (this.#lock !== undefined && this.#lock.startTs <= safePoint)) return
    this.#say(`collected up to ${safePoint}`)
    this.#safePoint = safePoint
    if (this.#ack !== undefined && this.#ack.commitTs <= safePoint && this.#parked === undefined) this.#ack = undefined
    const base = this.#row.findLast(({ ts }) => ts <= safePoint)
    this.#row = this.#row.filter((version) => version.ts > safePoint || (version === base && version.kind === 'put'))
  }

  #checkEntry(): void {
    const uncovered = this.#changes.filter(({ isCovered }) => !isCovered).map(({ ts }) => ts)
    if (this.#notification !== undefined && uncovered.length === 0)
      this.#fail('the entry stands, and every change is covered')
    if (this.#notification === undefined && this.#parked === undefined && uncovered.length > 0)
      this.#fail(`nothing stands for the changes at ${uncovered.join(', ')}`)
    if (this.#notification === undefined && this.#parked !== undefined && uncovered.length === 0)
      this.#fail('parked, and every change is covered')
  }

  /** Whoever is under way ends, and runs go on as long as the cell is dirty: one run by start_ts, or one one-shot, is enough. */
  #comeToRest(): void {
    this.#happen({ on: 'take commit_ts', isFresh: true, pick: 0 })
    this.#happen({ on: 'commit' })
    this.#happen({ on: 'retry' })
    this.#checkEntry()
    if (this.#notification === undefined) return
    this.#happen({ on: 'claim' })
    const fence = this.#now
    const isOneShot = this.lines.length % 2 === 0
    const startTs = ++this.#now
    const run = { fence, startTs, seen: isOneShot ? fence : startTs, isOneShot, writesKey: this.lines.length % 3 === 0 }
    const outcome = this.#commitRun(run)
    if (outcome !== 'acknowledged') this.#fail(`a run that has just claimed and begun: ${outcome}`)
    this.#checkEntry()
    if (this.#notification !== undefined) this.#fail('at rest, and not all is covered')
  }
}

const pickFrom = <T>(all: readonly T[], pick: number): T | undefined =>
  all.length === 0 ? undefined : all[all.length - 1 - (pick % all.length)]

function describe(outcome: AckOutcome): string {
  if (outcome.kind === 'refused') return `refused, ${outcome.error.message}`
  if (outcome.kind === 'repeat') return `repeated, committed at ${outcome.commitTs}`
  const { isClean, ack } = outcome
  return `commits at ${ack.commitTs} having seen ${ack.ackTs}, ${isClean ? 'and the cell is clean' : 'and the entry stays'}`
}
