import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'

/** Between a client and a server on this machine. */
export class CuttingProxy {
  /** Whether the next piece of an answer breaks its connection instead of being passed on. */
  isCut: () => boolean = () => false
  /** Called for each connection: what is passed on of the pieces of its answers. */
  passing: () => (bytes: Buffer) => Buffer = () => (bytes) => bytes
  /** Where new connections go. */
  target = 0
  /** Of connections that have died without a word. */
  readonly #silent = new Set<Socket>()
  readonly #server: Server
  readonly #sockets = new Set<Socket>()

  private constructor(server: Server) {
    this.#server = server
  }

  static async start(port: number): Promise<CuttingProxy> {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const proxy = new CuttingProxy(server)
    proxy.target = port
    server.on('connection', (client) => proxy.#pass(client, connect(proxy.target, '127.0.0.1')))
    return proxy
  }

  #pass(client: Socket, server: Socket): void {
    const cut = (): void => {
      client.destroy()
      server.destroy()
    }
    for (const socket of [client, server]) {
      this.#sockets.add(socket)
      socket.on('error', cut)
      socket.on('close', cut)
    }
    client.on('data', (bytes) => this.#silent.has(client) || server.write(bytes))
    const passed = this.passing()
    server.on('data', (bytes) => {
      if (this.#silent.has(server)) return
      if (this.isCut()) cut()
      else client.write(passed(bytes))
    })
  }

  /** Nothing passes any more by the connections that there are. */
  silence(): void {
    for (const socket of this.#sockets) this.#silent.add(socket)
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  close(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }
}
