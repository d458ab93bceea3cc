import type { Socket } from 'node:net'
import { turn } from '../../store/support.js'

/** What a client does on one connection. */
export interface Dialogue {
  /** Written before the segments, one by one and with pacing `answered`. */
  readonly prelude?: readonly Buffer[]
  /** Written one by one. */
  readonly segments: readonly Buffer[]
  /**
   * What the client waits for between two segments: nothing; that the server has read the last one; that the server has nothing
   * left to do; or the latter where a request is being answered and else the former.
   */
  readonly pacing: 'none' | 'read' | 'quiet' | 'answered'
  /** After the last segment: a half-close when the server has nothing left to do, the same at once, or a hang-up at once. */
  readonly end: 'half-close' | 'eager half-close' | 'hang-up'
}

export interface Transcript {
  /** All bytes that were answered. */
  readonly answer: Buffer
  /** How many of them came before the client closed its half. */
  readonly before: number
  /** The server closed the connection before the client closed its half. */
  readonly isClosedByServer: boolean
  /** The server neither went on reading nor closed the connection. */
  readonly isStuck: boolean
}

/** The server's end of a connection. */
export interface ServerEnd {
  /** undefined: not accepted yet, or gone. */
  socket(): Socket | undefined
  /** Whether calls of the storage engine are running. */
  isWorking(): boolean
  /** Whether node:http has passed a request on that has no whole answer. */
  isAnswering(): boolean
}

/** Turns of the event loop without a change, after which there will be none: the longest path takes three. */
const QUIET_TURNS = 5
const STUCK_MS = 10_000

/** Client and server are in one process, so the client can see that the server has nothing left to do. */
export async function converse(
  { prelude = [], segments, pacing, end }: Dialogue,
  client: Socket,
  server: ServerEnd,
): Promise<Transcript> {
  const pieces: Buffer[] = []
  let received = 0
  let sent = 0
  let isOver = false
  let isClosed = false
  client.on('data', (piece: Buffer) => {
    pieces.push(piece)
    received += piece.length
  })
  client.on('error', () => {}) // A reset. The bytes before it have been read.
  client.once('end', () => {
    isOver = true
  })
  client.once('close', () => {
    isOver = true
    isClosed = true
  })

  const giveUpAtMs = performance.now() + STUCK_MS
  const isStuck = (): boolean => performance.now() > giveUpAtMs
  /** Until the check holds after each of some turns in a row. */
  const until = async (check: () => boolean, turns: number): Promise<void> => {
    for (let held = 0; held < turns && !isStuck(); held = check() ? held + 1 : 0) await turn()
  }
  const isRead = (): boolean => isOver || server.socket()?.bytesRead === sent
  const quiet = (): Promise<void> => {
    let seen = -1
    return until(() => {
      const isSame = seen === received
      seen = received
      return isOver || (isSame && isRead() && !server.isWorking() && server.socket()?.bytesWritten === received)
    }, QUIET_TURNS)
  }

  const send = async (segment: Buffer, pacing: Dialogue['pacing']): Promise<void> => {
    if (isOver) return
    client.write(segment)
    sent += segment.length
    if (pacing === 'none') return
    if (pacing !== 'quiet') await until(isRead, 1)
    if (pacing === 'quiet' || (pacing === 'answered' && server.isAnswering())) await quiet()
  }

  for (const segment of prelude) await send(segment, 'answered')
  for (const segment of segments) await send(segment, pacing)
  if (end === 'half-close') await quiet()
  const before = received
  const isClosedByServer = isOver
  if (end === 'hang-up') client.destroy()
  else client.end()
  await until(() => isClosed && server.socket() === undefined && !server.isWorking(), QUIET_TURNS)
  client.destroy()
  return { answer: Buffer.concat(pieces), before, isClosedByServer, isStuck: isStuck() }
}
