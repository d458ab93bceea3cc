import { createHmac, randomBytes } from 'node:crypto'
import { backgroundTimer } from '../../../event-loop/background-timer.js'
import { sleep } from '../../../event-loop/sleep.js'
import { type Broadcast, TEXT_BYTES_MAX } from './broadcast.js'

/** Least time between two texts of this server. What it has to say meanwhile shares the next one. */
const GATHER_MS = 5
/** A server says again what it listens for after this time, and the others forget it after the longer one. */
const SAY_AGAIN_MS = 3000
const WANTED_MS = 10_000
/** By then the others have usually heard what this server listens for. */
const HEARD_MS = 100
/** Topics that this server listens for, or has yet to tell of. With more it names none of them, but everything. */
const NAMED_MAX = 10_000
/** Topics that others want. With more, everything is taken to be wanted. */
const WANTED_MAX = 50_000
/** Least time between two times that another server wakes all who wait here. */
const WAKE_ALL_MS = 500
const NAME_BYTES = 6
const NAME_LENGTH = 8
const ID_BYTES = 8
/** Each of up to 12 characters. */
const IDS_PER_TEXT = Math.floor((TEXT_BYTES_MAX - NAME_LENGTH) / 12)
const EVERYTHING = '*'
const ENTRY = /([?!])([\w-]{11}|\*)/g

type Wake = () => void
/** By the id of the topic. */
type Listeners = Map<string, Set<Wake>>

/**
 * Wakes who waits for something in the table: at this server, and at others where the engine has a broadcast. A wake-up only says
 * "look now". It may come for nothing, and a lost one costs the time until the waiter looks by itself.
 *
 * A text is the name of its server, and then topics, shortened: `?` where the server listens for one, `!` where something has
 * happened. Nobody is told of topics that no other server has lately said to listen for. Topics are hashed with the secret of the
 * table, because more people may read the texts than the table.
 */
export class WakeUps {
  readonly #broadcast: Broadcast | undefined
  readonly #secret: Uint8Array
  readonly #name = randomBytes(NAME_BYTES).toString('base64url')
  readonly #listeners: Listeners = new Map()
  /** Of what is announced. */
  readonly #followers: Listeners = new Map()
  /** Listeners that leave by themselves: what makes them leave, and when. */
  readonly #lent = new Map<string, { readonly end: () => void; untilMs: number }>()
  /** When this server last said that it listens, from the earliest on. */
  readonly #saidMs = new Map<string, number>()
  /** Until when others want to be told. */
  readonly #wantedMs = new Map<string, number>()
  #allWantedMs = 0
  readonly #toSay = new Set<string>()
  readonly #toTell = new Set<string>()
  #isSending = false
  #isClosed = false
  #stopTimer: (() => void) | undefined
  #stopRest: (() => void) | undefined
  #isWakingAll = false

  /** @param secret of the table, which its servers share. */
  constructor(broadcast?: Broadcast, secret: Uint8Array = new Uint8Array()) {
    this.#broadcast = broadcast
    this.#secret = secret
    broadcast?.listen(
      (text) => this.#heard(text),
      () => this.#opened(),
    )
  }

  /** How many times longer a waiter may wait until its next look. @param listeningMs for how long it has listened. */
  patience(listeningMs: number): number {
    return this.#broadcast?.isOpen && listeningMs >= HEARD_MS ? this.#broadcast.patience : 1
  }

  // ---- Listening

  /** @param wake must not throw. @returns a function that ends it. */
  listen(topic: string, wake: Wake): () => void {
    const id = this.#idOf(topic)
    const end = added(this.#listeners, id, wake)
    this.#say(id)
    return end
  }

  /** As `listen`, until some seconds after the last call for the topic. Does nothing where no other server can tell. */
  listenAWhile(topic: string, wake: Wake): void {
    if (this.#broadcast === undefined || this.#isClosed) return
    const id = this.#idOf(topic)
    const untilMs = performance.now() + WANTED_MS
    const lent = this.#lent.get(id)
    if (lent === undefined) this.#lent.set(id, { end: added(this.#listeners, id, wake), untilMs })
    else lent.untilMs = untilMs
    this.#say(id)
  }

  /** Listens for what is announced. */
  follow(topic: string, wake: Wake): void {
    added(this.#followers, this.#idOf(topic), wake)
  }

  // ---- Telling

  /** Call when something has happened. Others are told if they listen. */
  tell(topic: string): void {
    if (!this.#isAnythingWanted) return
    const id = this.#idOf(topic)
    this.#wake(id)
    if (this.#isWantedByOthers(id)) this.#send(this.#toTell, id)
  }

  /** Whether this server or another one listens for the topic. */
  isWanted(topic: string): boolean {
    if (!this.#isAnythingWanted) return false
    const id = this.#idOf(topic)
    return this.#listeners.has(id) || this.#isWantedByOthers(id)
  }

  get #isAnythingWanted(): boolean {
    return this.#listeners.size + this.#wantedMs.size > 0 || this.#allWantedMs > 0
  }

  #isWantedByOthers(id: string): boolean {
    return this.#allWantedMs > 0 || this.#wantedMs.has(id)
  }

  /** Call when something rare has happened, of which all servers are told. */
  announce(topic: string): void {
    const id = this.#idOf(topic)
    this.#wake(id)
    this.#send(this.#toTell, id)
  }

  close(): void {
    this.#isClosed = true
    this.#stopTimer?.()
    this.#stopRest?.()
    this.#listeners.clear()
    this.#followers.clear()
  }

  #wake(id: string): void {
    for (const wake of this.#listeners.get(id) ?? []) wake()
    for (const wake of this.#followers.get(id) ?? []) wake()
  }

  #wakeAll(): void {
    for (const id of [...this.#listeners.keys(), ...this.#followers.keys()]) this.#wake(id)
  }

  /** At once, and at the end of the rest that follows if it is called meanwhile. */
  #wakeAllAtTimes(): void {
    this.#isWakingAll = this.#stopRest !== undefined
    if (this.#isWakingAll) return
    this.#wakeAll()
    this.#stopRest = backgroundTimer(WAKE_ALL_MS, () => {
      this.#stopRest = undefined
      if (this.#isWakingAll) this.#wakeAllAtTimes()
    })
  }

  // ---- Texts

  /** @returns false when others have heard it lately, or cannot hear it. */
  #say(topicId: string): boolean {
    const id = this.#listeners.size > NAMED_MAX ? EVERYTHING : topicId
    if (this.#saidMs.has(id) || !this.#send(this.#toSay, id)) return false
    this.#saidMs.set(id, performance.now())
    this.#startTimer()
    return true
  }

  #sayAll(): void {
    for (const id of this.#listeners.keys()) this.#say(id)
  }

  #send(entries: Set<string>, id: string): boolean {
    if (!this.#broadcast?.isOpen || this.#isClosed) return false
    if (entries.size === NAMED_MAX) {
      entries.clear()
      entries.add(EVERYTHING)
    } else if (!entries.has(EVERYTHING)) entries.add(id)
    if (!this.#isSending) void this.#sendAll(this.#broadcast)
    return true
  }

  async #sendAll(broadcast: Broadcast): Promise<void> {
    this.#isSending = true
    await new Promise((next) => setImmediate(next)) // What happens in one turn of the event loop shares a text.
    while (this.#toSay.size + this.#toTell.size > 0) {
      const half = Math.floor(IDS_PER_TEXT / 2)
      const told = taken('!', this.#toTell, IDS_PER_TEXT - Math.min(half, this.#toSay.size))
      const said = taken('?', this.#toSay, IDS_PER_TEXT - told.length)
      await Promise.all([broadcast.send([this.#name, ...said, ...told].join('')), sleep(GATHER_MS)])
    }
    this.#isSending = false
  }

  #heard(text: string): void {
    if (this.#isClosed || text.startsWith(this.#name)) return
    const untilMs = performance.now() + WANTED_MS
    for (const [, kind, id = ''] of text.slice(NAME_LENGTH).matchAll(ENTRY))
      if (kind === '?') this.#want(id, untilMs)
      else if (id === EVERYTHING) this.#wakeAllAtTimes()
      else this.#wake(id)
  }

  #want(id: string, untilMs: number): void {
    if (id === EVERYTHING || this.#wantedMs.size >= WANTED_MAX) this.#allWantedMs = untilMs
    else this.#wantedMs.set(id, untilMs)
    this.#startTimer()
  }

  #opened(): void {
    if (this.#isClosed) return
    this.#saidMs.clear()
    this.#sayAll()
    this.#wakeAll()
  }

  // ---- As time passes

  #startTimer(): void {
    if (this.#stopTimer !== undefined || this.#isClosed) return
    const texts = Math.min(this.#saidMs.size, NAMED_MAX) / IDS_PER_TEXT
    this.#stopTimer = backgroundTimer(SAY_AGAIN_MS / Math.max(1, Math.ceil(texts)), () => {
      this.#stopTimer = undefined
      this.#forget()
      this.#sayAgain()
      const isOver = this.#saidMs.size + this.#wantedMs.size + this.#lent.size === 0 && this.#allWantedMs === 0
      if (!isOver) this.#startTimer()
    })
  }

  #forget(): void {
    const nowMs = performance.now()
    for (const [id, { end, untilMs }] of this.#lent)
      if (untilMs <= nowMs) {
        end()
        this.#lent.delete(id)
      }
    for (const [id, untilMs] of this.#wantedMs) if (untilMs <= nowMs) this.#wantedMs.delete(id)
    if (this.#allWantedMs <= nowMs) this.#allWantedMs = 0
  }

  /** What fills one text, so that repeats are spread over time. */
  #sayAgain(): void {
    const untilMs = performance.now() - SAY_AGAIN_MS
    let left = IDS_PER_TEXT
    for (const [id, saidMs] of this.#saidMs) {
      if (saidMs > untilMs || left === 0) break
      this.#saidMs.delete(id)
      if (id === EVERYTHING) this.#sayAll()
      else if (this.#listeners.has(id) && this.#say(id)) left--
    }
  }

  #idOf(topic: string): string {
    return createHmac('sha256', this.#secret)
      .update(topic, 'latin1')
      .digest()
      .subarray(0, ID_BYTES)
      .toString('base64url')
  }
}

/** @returns a function that removes it. */
function added(listeners: Listeners, id: string, wake: Wake): () => void {
  const all = listeners.get(id) ?? new Set()
  listeners.set(id, all.add(wake))
  return () => {
    all.delete(wake)
    if (all.size === 0 && listeners.get(id) === all) listeners.delete(id)
  }
}

/** Removes up to so many. */
function taken(kind: '?' | '!', ids: Set<string>, most: number): readonly string[] {
  const some = [...ids].slice(0, most)
  for (const id of some) ids.delete(id)
  return some.map((id) => kind + id)
}
