import { percentEncode } from '../client/http/key-path.js'
import { BACKUP_LOCK_WAIT_MS } from '../limits.js'
import { type Flags, flagsHelp, integer, readFlags } from '../server/flags.js'
import { BASE64_FLAG, rangeOf } from './client/arguments.js'
import type { Command } from './command.js'
import { openOutput } from './output.js'
import { Progress } from './progress.js'
import { RemotePin } from './remote-pin.js'
import { remoteServer, TRANSFER_FLAGS } from './remote-server.js'

const DUMP_FLAGS = {
  ...TRANSFER_FLAGS,
  prefix: { value: 'KEY', help: 'keys that begin with it' },
  start: { value: 'KEY', help: 'first key' },
  end: { value: 'KEY', help: 'end of the range; this key is not written' },
  ...BASE64_FLAG,
  ts: { value: 'TS', help: 'the snapshot to write; the newest that no lock blocks when absent' },
} as const satisfies Flags

const NEWLINE = 0x0a

export const dump: Command = {
  flags: DUMP_FLAGS,
  operands: ['[FILE]'],
  help: `Usage: perkv dump [flags] [FILE|-]

Writes the pairs of one snapshot as lines of JSON, to stdout unless a FILE is given: {"key", "value", "commit_ts"}, with
"expire_ts" and "lease_fence" where there is one; bytes that are not UTF-8 are {"base64"}. perkv load reads them. The file is FILE.part until it is complete.

Flags:
${flagsHelp(DUMP_FLAGS)}`,

  async run(args, env) {
    const flags = readFlags(DUMP_FLAGS, args, env, this.operands)
    const asked = flags.optional('ts')
    const query = new URLSearchParams({ lock_wait_ms: String(BACKUP_LOCK_WAIT_MS) })
    const range = Object.entries(rangeOf(flags)).map(([name, key]) =>
      key === undefined ? '' : `&${name}=${percentEncode(key)}`,
    )
    const ts = asked && integer(asked, 1, Number.MAX_SAFE_INTEGER)
    const server = await remoteServer(flags, env)
    const progress = new Progress('dump', 'line', { isQuiet: flags.isSet('quiet') })
    const output = await openOutput(flags.positionals[0] ?? '-')
    let pin: RemotePin | undefined
    try {
      if (ts !== undefined) {
        pin = await RemotePin.take(server, ts)
        query.set('ts', String(ts))
      }
      const response = await server.download(`/v1/kv?${query}${range.join('')}`, 'application/x-ndjson')
      const snapshotTs = Number(response.headers['snapshot-ts'] ?? ts)
      if (progress.isWatched && snapshotTs > 0) progress.expect(server.count(snapshotTs, range.join('')), 0)
      for await (const chunk of server.bodyOf(response)) {
        await output.write(chunk)
        progress.add(countOf(NEWLINE, chunk), chunk.length)
      }
      await output.finish()
      const of = `, ts ${response.headers['snapshot-ts'] ?? ts ?? 'unknown'}`
      progress.finish(progress.items === 0 ? `${of}: the server has no such keys` : of)
    } finally {
      progress.stop()
      await output.close()
      await pin?.release()
      server.close()
    }
  },
}

function countOf(byte: number, bytes: Uint8Array): number {
  let count = 0
  for (let at = bytes.indexOf(byte); at !== -1; at = bytes.indexOf(byte, at + 1)) count++
  return count
}
