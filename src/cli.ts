#!/usr/bin/env node
import { readFileSync } from 'node:fs'
import { readConfig, UsageError, usage } from './config.js'
import { DataDirectoryError } from './store/leveldb/data-directory-error.js'

/** Exit codes: 0 done, 1 could not run, 2 used wrongly. */
async function main(args: readonly string[]): Promise<void> {
  const [command, ...rest] = args
  if (command === '--help' || command === '-h' || command === 'help' || rest.includes('--help')) {
    process.stdout.write(usage())
  } else if (command === '--version' || command === '-v') {
    process.stdout.write(`${version()}\n`)
  } else if (command === 'serve') {
    await serve(rest)
  } else {
    throw new UsageError(command === undefined ? 'a command is missing: perkv serve' : `unknown command "${command}"`)
  }
}

async function serve(args: readonly string[]): Promise<void> {
  const config = readConfig(args, process.env)
  const { startServer } = await import('./server.js') // Help and a wrong flag need none of it.
  const server = await startServer(config, version())
  process.stdout.write(
    `PerKV ${version()} is ready on ${server.url}, data in ${config.data}. Try: curl -X PUT ${server.url}/v1/kv/hello -d world\n`,
  )
  let isStopping = false
  const stop = (): void => {
    if (isStopping) return
    isStopping = true
    server.close().then(
      () => process.exit(0),
      (error: unknown) => fail(error),
    )
  }
  process.on('SIGTERM', stop)
  process.on('SIGINT', stop)
}

function version(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
  return String((manifest as { version: unknown }).version)
}

function fail(error: unknown): void {
  const isUsage = error instanceof UsageError
  process.stderr.write(`perkv: ${messageOf(error)}${isUsage ? ' (see perkv --help)' : ''}\n`)
  process.exit(isUsage ? 2 : 1)
}

/** One line for what goes wrong in the field; a stack only for a defect. */
function messageOf(error: unknown): string {
  if (error instanceof UsageError || error instanceof DataDirectoryError) return error.message
  if (!(error instanceof Error)) return String(error)
  const { code, address, port } = error as NodeJS.ErrnoException & { address?: string; port?: number }
  if (code === 'EADDRINUSE') return `port ${port} on ${address} is in use`
  if (code === 'EACCES') return `port ${port} on ${address} needs more rights than this process has`
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') return `this machine has no address ${address ?? ''}`
  return code === undefined ? (error.stack ?? error.message) : error.message
}

main(process.argv.slice(2)).catch(fail)
