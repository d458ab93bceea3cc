import { createServer } from 'node:net'

export class UnusableAddress extends Error {
  override readonly name = 'UnusableAddress'
}

/**
 * Listens on the port for a moment, so that a start that cannot listen fails before it makes or opens any file.
 * @param port 0: any.
 * @returns a port that was free.
 * @throws UnusableAddress
 */
export function requireFree(host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once('error', (error) => reject(unusableAddress(error, host, port)))
    server.listen({ host, port, exclusive: true }, () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : port))
    })
  })
}

/** Turns an error of `listen` into one line; returns any other error as it is. */
export function unusableAddress(error: unknown, host: string, port: number): unknown {
  const { code, syscall, message } = error as NodeJS.ErrnoException
  const why = (): string | undefined => {
    if (syscall === 'getaddrinfo') return `the host ${host} is unknown (${code})`
    if (syscall !== 'listen' && syscall !== 'bind') return undefined
    if (code === 'EADDRINUSE') return `port ${port} on ${host} is in use`
    if (code === 'EACCES') return `port ${port} on ${host} needs more rights than this process has`
    if (code === 'EADDRNOTAVAIL') return `this machine has no address ${host}`
    return `cannot listen on ${host}, port ${port}: ${message}`
  }
  const detail = why()
  return detail === undefined ? error : new UnusableAddress(detail, { cause: error })
}
