import { amount } from './amount.js'

const EVERY_MS_TTY = 200
const EVERY_MS_LINES = 5000
const BAR_WIDTH = 24

export interface ProgressOptions {
  readonly isQuiet: boolean
  /** Total of `bytes`, when it is known. */
  readonly totalBytes?: number | undefined
}

export class Progress {
  bytes = 0
  /** undefined when items are not counted. */
  items: number | undefined = 0
  /** How much is done, from 0 to 1, where neither bytes nor items say it. */
  share: number | undefined
  #totalItems: number | undefined
  /** Items of earlier runs, which count for the share. */
  #itemsBefore = 0
  readonly #startedAt = performance.now()
  readonly #timer: NodeJS.Timeout | undefined
  readonly #totalBytes: number | undefined
  readonly #isTty = process.stderr.isTTY === true

  /** @param item name of one counted item: key, line. */
  constructor(
    readonly name: string,
    readonly item: string,
    readonly options: ProgressOptions,
  ) {
    this.#totalBytes = options.totalBytes || undefined
    if (options.isQuiet) return
    this.#timer = setInterval(() => this.#show(), this.#isTty ? EVERY_MS_TTY : EVERY_MS_LINES).unref()
  }

  add(items: number, bytes: number): void {
    this.items = (this.items ?? 0) + items
    this.bytes += bytes
  }

  /** Whether somebody watches, so that it is worth to find out the total. */
  get isWatched(): boolean {
    return this.#isTty && !this.options.isQuiet
  }

  /** @param total of the items; undefined when it cannot be known. @param before those that were there before this run. */
  expect(total: Promise<number | undefined>, before: number): void {
    this.#itemsBefore = before
    total.then(
      (items) => {
        this.#totalItems = items
      },
      () => {},
    )
  }

  /** Prints a line of its own. */
  note(text: string): void {
    if (this.options.isQuiet) return
    process.stderr.write(`${this.#isTty ? '\r\x1b[K' : ''}perkv ${this.name}: ${text}\n`)
  }

  stop(): void {
    if (this.#timer === undefined) return
    clearInterval(this.#timer)
    if (this.#isTty) process.stderr.write('\r\x1b[K')
  }

  finish(rest = ''): void {
    this.stop()
    const seconds = ((performance.now() - this.#startedAt) / 1000).toFixed(1)
    this.note(`${this.#amount()} in ${seconds} s (${this.#rate()})${rest}`)
  }

  #show(): void {
    const share = this.#share()
    const line = `${share === undefined ? '' : `${bar(Math.min(1, share))} `}${this.#amount()}, ${this.#rate()}`
    if (this.#isTty) process.stderr.write(`\r\x1b[K${this.name} ${line}`)
    else this.note(line)
  }

  #share(): number | undefined {
    if (this.#totalBytes !== undefined) return this.bytes / this.#totalBytes
    if (this.#totalItems === undefined) return this.share
    return this.#totalItems === 0 ? 1 : ((this.items ?? 0) + this.#itemsBefore) / this.#totalItems
  }

  #amount(): string {
    const items = this.items === undefined ? '' : `${amount(this.items, this.item)}, `
    return `${items}${megabytes(this.bytes)} MB`
  }

  #rate(): string {
    const seconds = Math.max(0.001, (performance.now() - this.#startedAt) / 1000)
    const items = this.items === undefined ? '' : `${amount(Math.round(this.items / seconds), this.item)}/s, `
    return `${items}${megabytes(this.bytes / seconds)} MB/s`
  }
}

function bar(share: number): string {
  const full = Math.floor(share * BAR_WIDTH)
  return `[${'#'.repeat(full)}${'.'.repeat(BAR_WIDTH - full)}] ${String(Math.floor(share * 100)).padStart(3)} %`
}

function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(1)
}
