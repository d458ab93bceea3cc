import type { Target } from '../anomalies/list-append-workload.js'
import { type ServerProcess, startProcess } from './server-process.js'

/** One address and one directory; process after process. */
export class MortalServer implements Target {
  #process: ServerProcess
  #up: Promise<unknown> = Promise.resolve()
  readonly url: string
  lives = 1
  /** From the start of each process after a kill to its ready line. */
  readonly restartsMs: number[] = []

  private constructor(
    readonly data: string,
    process: ServerProcess,
  ) {
    this.#process = process
    this.url = process.url
  }

  static async start(data: string): Promise<MortalServer> {
    return new MortalServer(data, await startProcess(data))
  }

  async isUp(): Promise<void> {
    await this.#up
  }

  /** kill -9, and a new process on the same directory and port. */
  async restart(): Promise<void> {
    const again = async (): Promise<void> => {
      await this.#process.stop('SIGKILL')
      const begin = performance.now()
      this.#process = await startProcess(this.data, ['--port', new URL(this.url).port])
      this.restartsMs.push(performance.now() - begin)
      this.lives++
    }
    this.#up = again()
    await this.#up
  }

  async end(): Promise<void> {
    await this.#process.stop('SIGKILL')
  }
}
