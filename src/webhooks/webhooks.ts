import type { Page, PageRequest } from '../bytes/sorted-map.js'
import type { ConsumerState } from '../changes/rules/changes-api.js'
import type { Database } from '../database/database.js'
import { isKvError, KvError } from '../errors/kv-error.js'
import { sleep } from '../event-loop/sleep.js'
import {
  type Limits,
  LOCK_WAIT_MS_DEFAULT,
  MAX_RETRIES_DEFAULT,
  WEBHOOK_ATTEMPTS_DEFAULT,
  WEBHOOK_BACKOFF_MAX_MS_DEFAULT,
  WEBHOOK_BACKOFF_MS_DEFAULT,
  WEBHOOK_BATCH_DEFAULT,
  WEBHOOK_TIMEOUT_MS_DEFAULT,
} from '../limits.js'
import type { Logger } from '../logger.js'
import { type GivenRange, isSameRange, keyRangeOf } from '../percolator/given-range.js'
import { requireName } from '../percolator/name.js'
import { type RecordKind, RecordTable } from '../store/record-table.js'
import { physicalMs, type Timestamp } from '../timestamp.js'
import { Courier } from './courier.js'
import { afterFailedAttempt, type FailedAttempt } from './retry-policy.js'
import { newSecret, secretIn, secretText } from './signing-secret.js'
import type { Targets } from './targets.js'
import { consumerOf, noSuchWebhook, type Webhook, type WebhookOptions } from './webhook.js'
import { decodeWebhook, encodeWebhook } from './webhook-record.js'

const KIND: RecordKind<Webhook> = { prefix: 'webhook/', encode: encodeWebhook, decode: decodeWebhook }
/** Time between two looks at what other servers have changed, and at whether the server that delivers has gone. */
const LOOK_MS = 2000

export interface WebhooksOptions {
  readonly targets: Targets
  readonly limits: Pick<Limits, 'pageBytesMax'>
  readonly log: Logger
  readonly version: string
}

export interface WebhookRegistration extends Partial<WebhookOptions> {
  readonly url: string
  readonly range: GivenRange
  /** `whsec_` and base64. Absent: a new webhook gets one, and others keep theirs. */
  readonly secret?: string | undefined
  /** For a new webhook. */
  readonly sinceTs?: Timestamp | undefined
  readonly holdMs?: number | undefined
}

export interface WebhookState {
  readonly webhook: Webhook
  /** `gap`: changes above the position were collected, or the consumer was deleted. */
  readonly state: 'running' | 'retrying' | 'parked' | 'gap'
  /** undefined: it was deleted. */
  readonly consumer: ConsumerState | undefined
  readonly counts: DeliveryCounts
}

/** By this process. */
export interface DeliveryCounts {
  readonly deliveries: number
  readonly failures: number
}

const NONE: DeliveryCounts = { deliveries: 0, failures: 0 }

/** Webhooks of a range of the feed. README.md in this folder says what rests on what. */
export class Webhooks {
  readonly #database: Database
  readonly #options: WebhooksOptions
  readonly #webhooks: RecordTable<Webhook>
  readonly #counts = new Map<string, DeliveryCounts>()
  /** Those of the webhooks that this server delivers now. */
  readonly #couriers = new Map<string, { readonly courier: Courier; readonly ended: Promise<void> }>()
  /** While this server delivers. */
  #delivering: AbortSignal | undefined
  readonly #end = new AbortController()
  #leading: Promise<void> = Promise.resolve()

  constructor(database: Database, options: WebhooksOptions) {
    this.#database = database
    this.#options = options
    this.#webhooks = new RecordTable(database.store.system, KIND, (name) => this.#changed(name))
  }

  /** Begins to deliver, or to wait until another server stops. */
  start(): void {
    this.#leading = this.#lead()
  }

  /** Aborts the requests in flight: they are sent again by whoever goes on. */
  async close(): Promise<void> {
    this.#end.abort()
    await this.#leading
  }

  // ---- Calls

  /** @returns `secret` when one was made: it is told nowhere else. */
  async put(
    name: string,
    registration: WebhookRegistration,
  ): Promise<{ readonly state: WebhookState; readonly isNew: boolean; readonly secret: string | undefined }> {
    const { consumers } = this.#database.changes
    const { range, sinceTs, holdMs, secret: given, ...options } = registration
    requireName('webhook', name)
    const url = this.#options.targets.require(registration.url).href
    const wanted = given === undefined ? undefined : secretIn(given)
    const keyRange = keyRangeOf(range)
    const before = await this.#webhooks.refresh(name)
    if (before !== undefined && !isSameRange(keyRangeOf(before.range), keyRange))
      throw new KvError('already_exists', `the webhook ${name} has another range: delete it first`, {})
    // One that was deleted is missing until a reset says where to go on.
    if (before === undefined || (await this.#consumerOf(name)) !== undefined)
      await consumers.put(consumerOf(name), { range, sinceTs, holdMs })
    let isMade = false
    const webhook = await this.#webhooks.change(name, async (present) => {
      const changeTs = await this.#database.store.tso(1)
      const known = wanted ?? present?.secret
      isMade = known === undefined
      return {
        id: present?.id ?? changeTs,
        name,
        range,
        maxAttempts: WEBHOOK_ATTEMPTS_DEFAULT,
        backoffMs: WEBHOOK_BACKOFF_MS_DEFAULT,
        backoffMaxMs: WEBHOOK_BACKOFF_MAX_MS_DEFAULT,
        timeoutMs: WEBHOOK_TIMEOUT_MS_DEFAULT,
        batch: WEBHOOK_BATCH_DEFAULT,
        ...options,
        url,
        secret: known ?? newSecret(),
        failure: present?.url === url ? present.failure : undefined,
        changeTs,
      }
    })
    const secret = isMade ? secretText(webhook.secret) : undefined
    return { state: await this.#stateOf(webhook), isNew: webhook.id === webhook.changeTs, secret }
  }

  /** @throws KvError `not_found` */
  async get(name: string): Promise<WebhookState> {
    const webhook = await this.#webhooks.refresh(name)
    if (webhook === undefined) throw noSuchWebhook(name)
    return this.#stateOf(webhook)
  }

  async page(request: PageRequest): Promise<Page<WebhookState>> {
    await Promise.all([this.#webhooks.load(), this.#database.changes.consumers.refresh()])
    const { items, next } = await this.#webhooks.page(request, () => true)
    return { items: items.map((webhook) => this.#knownStateOf(webhook)), next }
  }

  /** @throws KvError `not_found` */
  async remove(name: string): Promise<void> {
    await this.#webhooks.change(name, (webhook): undefined => {
      if (webhook === undefined) throw noSuchWebhook(name)
    })
    await this.#database.changes.consumers.remove(consumerOf(name)).catch(passOver('not_found'))
  }

  /** Tries a batch that has failed again at once, with attempts from 0. @throws KvError `not_found` */
  async retry(name: string): Promise<WebhookState> {
    return this.#stateOf(await this.#begin(name))
  }

  /** Goes on after the batch that has failed, if there is one. @throws KvError `not_found` */
  async skip(name: string): Promise<WebhookState> {
    const { failure } = (await this.get(name)).webhook
    if (failure !== undefined) await this.#database.changes.consumers.ack(consumerOf(name), failure.upTo)
    return this.#stateOf(await this.#begin(name))
  }

  /** @param sinceTs default: now. @throws KvError `not_found`, `ts_below_safe_point` */
  async reset(name: string, sinceTs?: Timestamp): Promise<WebhookState> {
    const { consumers } = this.#database.changes
    const { webhook, consumer } = await this.get(name)
    if (consumer === undefined) await consumers.put(consumerOf(name), { range: webhook.range, sinceTs })
    else await consumers.reset(consumerOf(name), sinceTs)
    return this.#stateOf(await this.#begin(name))
  }

  #begin(name: string): Promise<Webhook> {
    return this.#change(name, () => undefined)
  }

  #change(name: string, failure: (webhook: Webhook) => Webhook['failure']): Promise<Webhook> {
    return this.#webhooks.change(name, async (webhook) => {
      if (webhook === undefined) throw noSuchWebhook(name)
      return { ...webhook, failure: failure(webhook), changeTs: await this.#database.store.tso(1) }
    })
  }

  // ---- State

  async #stateOf(webhook: Webhook): Promise<WebhookState> {
    await this.#database.changes.consumers.refresh(consumerOf(webhook.name))
    return this.#knownStateOf(webhook)
  }

  #knownStateOf(webhook: Webhook): WebhookState {
    const { name, failure } = webhook
    const consumer = this.#knownConsumerOf(name)
    const isGap = consumer === undefined || consumer.isLost
    const state = isGap ? 'gap' : failure === undefined ? 'running' : failure.isParked ? 'parked' : 'retrying'
    return { webhook, state, consumer, counts: this.#counts.get(name) ?? NONE }
  }

  async #consumerOf(name: string): Promise<ConsumerState | undefined> {
    await this.#database.changes.consumers.refresh(consumerOf(name))
    return this.#knownConsumerOf(name)
  }

  #knownConsumerOf(name: string): ConsumerState | undefined {
    try {
      return this.#database.changes.consumers.state(consumerOf(name))
    } catch (error) {
      return passOver('not_found')(error)
    }
  }

  /** Those that this server delivers. */
  *delivering(): Generator<WebhookState, void> {
    for (const name of this.#couriers.keys()) {
      const webhook = this.#webhooks.get(name)
      if (webhook !== undefined) yield this.#knownStateOf(webhook)
    }
  }

  // ---- Delivery

  /** One server at a time delivers all webhooks of a store. Never rejects. */
  async #lead(): Promise<void> {
    const { signal } = this.#end
    while (!signal.aborted) {
      const deliver = (lost: AbortSignal): Promise<void> => this.#deliver(AbortSignal.any([lost, signal]))
      await this.#database.registry.lead('webhooks', deliver).catch((error) => this.#report(error))
      await sleep(LOOK_MS, signal).catch(() => {})
    }
  }

  async #deliver(signal: AbortSignal): Promise<void> {
    this.#delivering = signal
    try {
      do {
        await this.#webhooks.load().catch((error) => this.#report(error))
        for (const { name } of this.#webhooks.values()) this.#changed(name)
        // What this server changes itself is told at once.
        await sleep(LOOK_MS, signal).catch(() => {})
      } while (!signal.aborted)
    } finally {
      this.#delivering = undefined
      await Promise.all([...this.#couriers.values()].map(({ ended }) => ended))
    }
  }

  #changed(name: string): void {
    const signal = this.#delivering
    const running = this.#couriers.get(name)
    running?.courier.wake()
    if (running !== undefined || signal?.aborted !== false || this.#webhooks.get(name) === undefined) return
    const courier = this.#courierOf(name, signal)
    const ended = courier.run().finally(() => {
      this.#couriers.delete(name)
      this.#changed(name) // It may have been made anew.
    })
    this.#couriers.set(name, { courier, ended })
  }

  #courierOf(name: string, signal: AbortSignal): Courier {
    const { changes } = this.#database
    const { targets, limits, version } = this.#options
    return new Courier(
      {
        ...{ changes, targets, userAgent: `perkv/${version}`, partBytesMax: limits.pageBytesMax },
        acknowledge: (consumer, from, ts) => this.#acknowledge(consumer, from, ts),
        webhook: () => this.#webhooks.get(name),
        nowMs: () => this.#nowMs,
        delivered: (webhook) => this.#delivered(webhook),
        failed: (webhook, attempt, upTo) => this.#failed(webhook, attempt, upTo),
        onGap: () => this.#tellGap(name),
        onError: (error) => this.#report(error),
      },
      signal,
    )
  }

  async #acknowledge(consumer: string, from: Timestamp, ts: Timestamp): Promise<void> {
    const commitEffects = { positions: [{ consumer, from, ts }] }
    const limits = { maxRetries: MAX_RETRIES_DEFAULT, lockWaitMs: LOCK_WAIT_MS_DEFAULT }
    await this.#database.transact({ checks: [], ops: [], commitEffects, ...limits })
  }

  get #nowMs(): number {
    return physicalMs(this.#database.store.now())
  }

  async #delivered({ name, failure }: Webhook): Promise<void> {
    this.#count(name, 'deliveries')
    if (failure === undefined) return
    await this.#begin(name).catch(passOver('not_found'))
    this.#options.log.info({ webhook: name }, 'the webhook delivers again')
  }

  async #failed(webhook: Webhook, attempt: FailedAttempt, upTo: Timestamp): Promise<void> {
    const { name, url } = webhook
    this.#count(name, 'failures')
    const failure = afterFailedAttempt(webhook.failure, attempt, {
      ...{ options: webhook, upTo, nowMs: this.#nowMs },
      random: Math.random(),
    })
    const { attempts, isParked } = failure
    const facts = { webhook: name, target: new URL(url).origin, attempts, error: attempt.error }
    if (isParked) this.#options.log.warn(facts, 'the webhook is parked: it needs a retry, or a skip')
    else if (attempts === 1) this.#options.log.warn(facts, 'a delivery of the webhook has failed: it is tried again')
    // A retry, a skip or a reset since the attempt began counts, and not the attempt.
    const isSame = ({ changeTs }: Webhook): boolean => changeTs === webhook.changeTs
    await this.#change(name, (present) => (isSame(present) ? failure : present.failure)).catch(passOver('not_found'))
  }

  #tellGap(name: string): void {
    if (this.#webhooks.get(name) === undefined) return // It is being removed.
    this.#options.log.warn({ webhook: name }, 'the webhook has a gap: nothing is sent until a reset')
  }

  #count(name: string, what: keyof DeliveryCounts): void {
    const counts = this.#counts.get(name) ?? NONE
    this.#counts.set(name, { ...counts, [what]: counts[what] + 1 })
  }

  #report(err: unknown): void {
    if (this.#end.signal.aborted || this.#database.store.upkeep.isReported(err)) return
    this.#options.log.error({ err }, 'webhooks are not delivered at the moment')
  }
}

/** A handler of errors that throws all but those with the code. */
function passOver(code: 'not_found'): (error: unknown) => undefined {
  return (error) => {
    if (!isKvError(error, code)) throw error
  }
}
