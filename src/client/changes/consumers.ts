import type { ConsumerState as ApiState, ConsumersApi } from '../../changes/rules/changes-api.js'
import { HOLD_MS_MIN, TIMER_MS_MAX } from '../../limits.js'
import type { Timestamp } from '../../timestamp.js'
import { AS, type As } from '../bytes.js'
import { givenRangeOf, RANGE_KINDS, type RangeOptions, type ReadRange, readRange } from '../key-range.js'
import { requireName } from '../name.js'
import type { NamedCall } from '../named-calls.js'
import { type Kinds, optionsOf, SINCE_TS, wholeUpTo } from '../options.js'
import { TIMEOUT_KINDS, type TimeoutOptions } from '../transaction-options.js'

export interface ConsumerState<A extends As = 'text'> extends Omit<ApiState, 'range'>, ReadRange<A> {}

interface AsOptions<A extends As> extends TimeoutOptions {
  /** The type in which the bounds of the range are returned. Default `text`. */
  readonly as?: A | undefined
}

export interface ConsumerOptions<A extends As = As> extends AsOptions<A> {
  /** Exclusive position of a new consumer. Default: now. An existing consumer keeps its position. */
  readonly sinceTs?: Timestamp | undefined
  /** Longest time for which its position keeps old versions from being collected, in milliseconds. Default: a day. */
  readonly holdMs?: number | undefined
}

interface ResetOptions<A extends As> extends AsOptions<A> {
  /** Default: now. */
  readonly sinceTs?: Timestamp | undefined
}

const rangeOptions = optionsOf<RangeOptions>('the range of a consumer', RANGE_KINDS)
const AS_KINDS: Kinds<AsOptions<As>> = { ...TIMEOUT_KINDS, as: AS }
const putOptions = optionsOf<ConsumerOptions>('put of a consumer', {
  ...AS_KINDS,
  sinceTs: SINCE_TS,
  holdMs: wholeUpTo(HOLD_MS_MIN, TIMER_MS_MAX),
})
const plainOptions = optionsOf<TimeoutOptions>('a call of consumers', TIMEOUT_KINDS)
const callOptions = optionsOf<AsOptions<As>>('a call of consumers', AS_KINDS)
const resetOptions = optionsOf<ResetOptions<As>>('reset', { ...AS_KINDS, sinceTs: SINCE_TS })

type Call = NamedCall<ConsumersApi>

/** Durable positions in the changes of ranges. A consumer that does not exist is `not_found`. */
export class Consumers {
  readonly #call: Call

  /** @internal */
  constructor(call: Call) {
    this.#call = call
  }

  /**
   * Registers a consumer of a range, or gives an existing one a new `holdMs`. @throws KvError `already_exists` for another
   * range.
   */
  async put<A extends As = 'text'>(
    name: string,
    range: RangeOptions = {},
    options: ConsumerOptions<A> = {},
  ): Promise<ConsumerState<A>> {
    const { as = 'text' as A, sinceTs, holdMs, timeoutMs } = putOptions(options)
    requireName('consumer', name)
    const registration = { range: givenRangeOf(rangeOptions(range)), sinceTs, holdMs }
    return shown((await this.#call((api) => api.put(name, registration), { timeoutMs })).state, as)
  }

  async get<A extends As = 'text'>(name: string, options: AsOptions<A> = {}): Promise<ConsumerState<A>> {
    const { as = 'text' as A, timeoutMs } = callOptions(options)
    requireName('consumer', name)
    return shown(await this.#call((api) => api.get(name), { timeoutMs, isRead: true }), as)
  }

  /** In order of names. */
  async list<A extends As = 'text'>(options: AsOptions<A> = {}): Promise<ConsumerState<A>[]> {
    const { as = 'text' as A, timeoutMs } = callOptions(options)
    return (await this.#call((api) => api.list(), { timeoutMs, isRead: true })).map((state) => shown(state, as))
  }

  async delete(name: string, options: TimeoutOptions = {}): Promise<void> {
    const { timeoutMs } = plainOptions(options)
    requireName('consumer', name)
    await this.#call((api) => api.remove(name), { timeoutMs })
  }

  /** Acknowledges everything at or below `ts`. The position never falls. A transaction acknowledges by its option `positions`. */
  async ack<A extends As = 'text'>(name: string, ts: Timestamp, options: AsOptions<A> = {}): Promise<ConsumerState<A>> {
    const { as = 'text' as A, timeoutMs } = callOptions(options)
    requireName('consumer', name)
    return shown(await this.#call((api) => api.ack(name, ts), { timeoutMs }), as)
  }

  /** Sets the position again, after the consumer was lost (`isLost`) or to receive changes again. */
  async reset<A extends As = 'text'>(name: string, options: ResetOptions<A> = {}): Promise<ConsumerState<A>> {
    const { as = 'text' as A, sinceTs, timeoutMs } = resetOptions(options)
    requireName('consumer', name)
    return shown(await this.#call((api) => api.reset(name, sinceTs), { timeoutMs }), as)
  }
}

function shown<A extends As>({ range, ...state }: ApiState, as: A): ConsumerState<A> {
  return { ...state, ...readRange(range, as) }
}
