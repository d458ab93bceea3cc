import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'

/**
 * One address for several servers, as users put in front of them: each connection goes to the next server that takes it. It
 * knows nothing of HTTP.
 */
export class LoadBalancer {
  readonly #server: Server
  readonly #urls: () => readonly string[]
  readonly #open = new Set<Socket>()
  #next = 0

  private constructor(urls: () => readonly string[]) {
    this.#urls = urls
    this.#server = createServer({ noDelay: true }, (client) => this.#pass(client, this.#urls().length))
  }

  static async start(urls: () => readonly string[]): Promise<LoadBalancer> {
    const balancer = new LoadBalancer(urls)
    balancer.#server.listen(0, '127.0.0.1')
    await once(balancer.#server, 'listening')
    return balancer
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  #pass(client: Socket, tries: number): void {
    const urls = this.#urls()
    const { hostname, port } = new URL(urls[this.#next++ % urls.length] as string)
    const server = connect({ host: hostname, port: Number(port), noDelay: true })
    let isConnected = false
    client.on('error', () => server.destroy())
    client.on('close', () => server.destroy())
    server.on('connect', () => {
      isConnected = true
      client.pipe(server).pipe(client)
    })
    server.on('close', () => {
      if (isConnected || tries <= 1) client.destroy()
      else this.#pass(client, tries - 1)
    })
    server.on('error', () => {}) // It closes as well.
    this.#open.add(client)
    client.on('close', () => this.#open.delete(client))
  }

  async stop(): Promise<void> {
    for (const socket of this.#open) socket.destroy()
    this.#server.close()
    await once(this.#server, 'close')
  }
}
