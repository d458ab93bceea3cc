import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { expect, test } from 'vitest'
import { CLI, ENV, withTempDir } from './server-process.js'

const DESCRIPTORS = 64

test('running out of file descriptors is one line of the log, and having some again another', () =>
  withTempDir(async (directory) => {
    const args = ['serve', '--port', '0', '--data', join(directory, 'data')]
    const limited = `ulimit -n ${DESCRIPTORS} && exec "$0" "$@"`
    const server = spawn('bash', ['-c', limited, process.execPath, CLI, ...args], {
      env: ENV,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const exit = once(server, 'exit')
    const sockets: Socket[] = []
    const told: string[] = []
    try {
      for await (const line of createInterface({ input: server.stdout })) {
        const port = /listening on http:\/\/[\d.]+:(\d+)/.exec(line)?.[1]
        if (port !== undefined)
          for (let i = 0; i < 2 * DESCRIPTORS; i++)
            sockets.push(connect(Number(port), '127.0.0.1').on('error', () => {}))
        if (!line.includes('file descriptors')) continue
        told.push((JSON.parse(line) as { msg: string }).msg)
        if (told.length === 1) for (const socket of sockets) socket.destroy()
        else server.kill('SIGTERM')
      }
    } finally {
      server.kill('SIGKILL')
      await exit
    }
    expect(told).toEqual([
      expect.stringMatching(/^no file descriptors are left \(EMFILE\)/),
      expect.stringMatching(/^there are file descriptors again, after \d+ s$/),
    ])
  }))
