import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { decodeBackup } from '../backup/backup-decoder.js'
import { BackupError, type BackupTotals } from '../backup/backup-format.js'
import { type Flags, flagsHelp, readFlags } from '../server/flags.js'
import type { Command } from './command.js'
import { Progress } from './progress.js'
import { BREAKS_MAX, isPassing, pauseAfterBreak, remoteServer, SERVER_FLAGS } from './remote-server.js'

const RESTORE_FLAGS = {
  ...SERVER_FLAGS,
  restart: { help: 'first removes the pairs of a restore that was not completed' },
} as const satisfies Flags

export const restore: Command = {
  help: `Usage: perkv restore [flags] FILE|-

Fills an empty server with the backup in FILE, or from stdin. The whole of FILE is verified before anything is sent. A
restore that was broken off is continued by the same command again; until it is complete the server serves nothing else.

Flags:
${flagsHelp(RESTORE_FLAGS)}`,

  async run(args, env) {
    const flags = readFlags(RESTORE_FLAGS, args, env, ['FILE'])
    const path = flags.positionals[0] as string
    const totalBytes = path === '-' ? undefined : (await stat(path)).size
    const server = await remoteServer(flags, env)
    const isQuiet = flags.isSet('quiet')
    const totals = path === '-' ? undefined : await verify(path, isQuiet)
    const progress = new Progress('restore', 'key', {
      isQuiet,
      totalBytes,
    })
    progress.items = undefined // Bytes are counted here, and not items.
    try {
      for (let breaks = 0; ; breaks++) {
        progress.bytes = 0
        const source = path === '-' ? process.stdin : createReadStream(path, { highWaterMark: 256 * 1024 })
        const restart = flags.isSet('restart') && breaks === 0 ? '?restart=true' : ''
        try {
          const body = Readable.from(counted(source, progress))
          const headers = { 'content-type': 'application/octet-stream' }
          await server.drain(await server.send('POST', `/v1/admin/restore${restart}`, { headers, body }))
          break
        } catch (error) {
          if (totals === undefined || !isPassing(error) || breaks >= BREAKS_MAX) throw error
          progress.note(`${(error as Error).message}; trying again`)
          await pauseAfterBreak(breaks)
        }
      }
      progress.items = totals?.pairs
      progress.finish()
    } finally {
      progress.stop()
      server.close()
    }
  },
}

/** @throws BackupError */
async function verify(path: string, isQuiet: boolean): Promise<BackupTotals> {
  const progress = new Progress('restore: verifying', 'key', { isQuiet, totalBytes: (await stat(path)).size })
  try {
    for await (const block of decodeBackup(counted(createReadStream(path, { highWaterMark: 256 * 1024 }), progress))) {
      if (block.type === 'header' && block.header.start !== undefined)
        throw new BackupError('unsupported', 'this file continues another backup, and cannot be restored by itself')
      if (block.type === 'data') progress.add(block.pairs.length, 0)
      if (block.type === 'end') return block.totals
    }
    throw new BackupError('cut_off', 'the backup has no end')
  } catch (error) {
    throw error instanceof BackupError ? new BackupError(error.reason, `${path}: ${error.message}`) : error
  } finally {
    progress.stop()
  }
}

async function* counted(source: AsyncIterable<Buffer>, progress: Progress): AsyncGenerator<Buffer, void, undefined> {
  for await (const chunk of source) {
    progress.bytes += chunk.length
    yield chunk
  }
}
