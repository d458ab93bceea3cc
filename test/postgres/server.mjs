import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  appendFileSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import pg from 'pg'

const DEBIAN = '/usr/lib/postgresql'

/** @returns {string | undefined} the directory of the newest `initdb` and `postgres`; undefined: there is none. */
export function programs() {
  const told = spawnSync('pg_config', ['--bindir'], { encoding: 'utf8' }).stdout?.trim()
  const found = existsSync(DEBIAN) ? readdirSync(DEBIAN).sort((a, b) => Number(b) - Number(a)) : []
  const directories = [...(told ? [told] : []), ...found.map((version) => join(DEBIAN, version, 'bin'))]
  return directories.find((directory) => ['initdb', 'postgres'].every((name) => existsSync(join(directory, name))))
}

/** PostgreSQL refuses root, so root starts it as another user. @returns {{ uid?: number, gid?: number }} */
function ordinaryUser() {
  if (process.getuid?.() !== 0) return {}
  for (const name of ['postgres', 'nobody']) {
    const [uid, gid] = ['-u', '-g'].map((flag) => Number(spawnSync('id', [flag, name], { encoding: 'utf8' }).stdout))
    if (uid > 0 && gid > 0) return { uid, gid }
  }
  throw new Error('there is neither a user postgres nor nobody to start PostgreSQL as')
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address())
  server.close()
  await once(server, 'close')
  return port
}

/** A PostgreSQL of its own, in a temporary directory, which is removed when it ends. Everybody on this machine may use it. */
export class PostgresServer {
  #bin
  #directory
  #port
  #user
  /** @type {import('node:child_process').ChildProcess | undefined} */
  #process

  /** @private */
  constructor(bin, directory, port, user) {
    this.#bin = bin
    this.#directory = directory
    this.#port = port
    this.#user = user
  }

  static async #make(/** @type {string} */ parent) {
    const bin = programs()
    if (bin === undefined) throw new Error('PostgreSQL is not there: install the package postgresql')
    const user = ordinaryUser()
    const directory = mkdtempSync(join(parent, 'perkv-postgres-'))
    if (user.uid !== undefined && user.gid !== undefined) chownSync(directory, user.uid, user.gid)
    return new PostgresServer(bin, directory, await freePort(), user)
  }

  /**
   * @param {readonly string[]} settings lines of postgresql.conf.
   * @param {string} [disk] a directory for the data, without the log.
   */
  static async start(settings = [], disk = undefined) {
    const server = await PostgresServer.#make(tmpdir())
    const { uid, gid } = server.#user
    if (disk !== undefined) {
      mkdirSync(join(disk, 'data'))
      if (uid !== undefined && gid !== undefined) chownSync(join(disk, 'data'), uid, gid)
      symlinkSync(join(disk, 'data'), server.#data)
    }
    const options = [
      '--auth=trust',
      '--username=perkv',
      '--encoding=UTF8',
      '--locale=C',
      '--no-sync',
      '--no-instructions',
      ...(disk === undefined ? [] : ['--waldir', join(server.#directory, 'log')]),
    ]
    server.#run('initdb', ['-D', server.#data, ...options])
    server.configure(['shared_buffers = 64MB', 'max_connections = 500', ...settings])
    await server.start()
    return server
  }

  get #data() {
    return join(this.#directory, 'data')
  }

  #run(/** @type {string} */ program, /** @type {readonly string[]} */ args) {
    const path = existsSync(join(this.#bin, program)) ? join(this.#bin, program) : program
    const { status, stderr } = spawnSync(path, args, this.#spawning('pipe'))
    if (status !== 0) throw new Error(`${program} has failed: ${stderr}`)
  }

  /** A backup of this server while it runs, as a server that is not started; a standby if it is. */
  async standby() {
    const made = await PostgresServer.#make(dirname(this.#directory))
    made.#run('pg_basebackup', ['-d', this.url(), '-D', made.#data, '-R', '-c', 'fast'])
    return made
  }

  /** A copy of the files of this server, which must not run. */
  async copy() {
    const made = await PostgresServer.#make(dirname(this.#directory))
    made.#run('cp', ['-a', this.#data, made.#data])
    return made
  }

  /** Makes a standby the primary, of the next timeline. */
  async promote() {
    await this.query('select pg_promote(true, 60)')
  }

  #spawning(/** @type {'pipe' | 'ignore'} */ stdio) {
    const env = { PATH: process.env['PATH'], LC_ALL: 'C' }
    return { ...this.#user, env, cwd: this.#directory, stdio, encoding: /** @type {'utf8'} */ ('utf8') }
  }

  /** By TCP. @param {string} [table] */
  url(table) {
    return `postgres://perkv@127.0.0.1:${this.#port}/postgres${table === undefined ? '' : `?table=${table}`}`
  }
  get port() {
    return this.#port
  }
  /** Of the process whose children do the work; undefined while it is stopped. */
  get pid() {
    return this.#process?.pid
  }

  /** Counts from the next start on. @param {readonly string[]} lines */
  configure(lines) {
    appendFileSync(join(this.#data, 'postgresql.conf'), `${lines.join('\n')}\n`)
  }

  async start() {
    const where = ['-h', '127.0.0.1', '-p', String(this.#port), '-k', this.#directory]
    const begin = () => spawn(join(this.#bin, 'postgres'), ['-D', this.#data, ...where], this.#spawning('ignore'))
    this.#process = begin()
    for (const endsAt = Date.now() + 60_000; ; ) {
      try {
        await this.query('select 1')
        return
      } catch (error) {
        const { exitCode } = this.#process
        if (Date.now() > endsAt) throw exitCode === null ? error : new Error(`postgres has ended with ${exitCode}`)
        if (exitCode !== null) this.#process = begin() // The children of one that was killed end a moment later.
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
    }
  }

  /** @param {'SIGINT' | 'SIGQUIT' | 'SIGKILL'} signal SIGINT: a clean stop; SIGQUIT: as after a crash. */
  async stop(signal = 'SIGINT') {
    const ending = this.#process
    if (ending === undefined) return
    this.#process = undefined
    ending.kill(signal)
    if (ending.exitCode === null && ending.signalCode === null) await once(ending, 'exit')
  }

  async end() {
    await this.stop('SIGQUIT')
    rmSync(this.#directory, { recursive: true, force: true })
  }

  /** Statements of a test. @param {string} text */
  async query(text) {
    const client = new pg.Client({ connectionString: this.url() })
    client.on('error', () => {})
    try {
      await client.connect()
      return (await client.query(text)).rows
    } finally {
      await client.end()
    }
  }
}
