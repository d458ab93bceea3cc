import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { basename, join, posix } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { parseDockerfile, type Stage } from './dockerfile.js'
import { withTempDir } from './server-process.js'

/**
 * The Dockerfile without an engine: each stage is a root of its own that has this machine's /usr, read-only, in place of the image, and
 * its steps run in there by `chroot`. So it is this machine's Node that builds and serves.
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const STAGES = parseDockerfile(readFileSync(join(ROOT, 'Dockerfile'), 'utf8'))
/** Of node:bookworm-slim. */
const NODE_USER = 1000
const run = promisify(execFile)

function mayMount(): boolean {
  try {
    execFileSync('unshare', ['--mount', 'true'], { stdio: 'ignore' })
    return process.getuid?.() === 0
  } catch {
    return false
  }
}
const isPossible = mayMount()
if (!isPossible) console.warn('The Dockerfile is not run: that takes root, and mounts (`unshare --mount`)')

let server: ChildProcess | undefined
afterAll(() => server?.kill('SIGKILL'))

class Root {
  readonly env: Record<string, string> = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin', HOME: '/root' }
  workdir = '/'
  user = 'root'

  constructor(readonly path: string) {
    for (const folder of ['usr', 'proc', 'dev', 'etc', 'tmp', 'root', '.npm'])
      mkdirSync(join(path, folder), { recursive: true })
    for (const link of ['bin', 'sbin', 'lib', 'lib64']) symlinkSync(`usr/${link}`, join(path, link))
    writeFileSync(join(path, 'etc/passwd'), `root:x:0:0::/root:/bin/sh\nnode:x:${NODE_USER}:${NODE_USER}::/:/bin/sh\n`)
    writeFileSync(join(path, 'etc/group'), `root:x:0:\nnode:x:${NODE_USER}:\n`)
    // How this machine reaches the registry.
    const config = ['/etc/resolv.conf', '/etc/hosts', '/etc/nsswitch.conf', '/etc/ssl', `${homedir()}/.npmrc`]
    for (const file of config) {
      const copy = join(path, file.startsWith('/etc') ? file : 'root/.npmrc')
      if (statSync(file, { throwIfNoEntry: false })) cpSync(file, copy, { recursive: true, dereference: true })
    }
  }

  at(path: string): string {
    return posix.join(this.workdir, path)
  }

  copy(from: string, to: string, intoFolder: boolean): void {
    const target = join(this.path, this.at(to))
    cpSync(from, intoFolder && !statSync(from).isDirectory() ? join(target, basename(from)) : target, {
      recursive: true,
      verbatimSymlinks: true,
    })
  }

  /** @param writable folder; all others are read-only then. */
  command(args: readonly string[], env: Record<string, string> = {}, writable?: string): [string, string[]] {
    const mounts = [
      'mount --rbind "$ROOT" "$ROOT" && cd "$ROOT"',
      'mount --bind /usr usr && mount -o remount,bind,ro usr',
      'mount --rbind /dev dev && mount -t proc proc proc',
      ...(writable === undefined
        ? ['mkdir -p "$CACHE" && mount --bind "$CACHE" .npm']
        : [`mount --bind .${writable} .${writable} && mount -o remount,bind,ro .`]),
      `exec chroot --userspec="$AS" . env -i "$@"`,
    ]
    const inside = Object.entries({ ...this.env, npm_config_cache: '/.npm', ...env }).map(
      ([name, value]) => `${name}=${value}`,
    )
    const cd = ['/bin/sh', '-c', `cd ${this.workdir} && exec "$@"`, 'sh']
    const outside = ['env', `ROOT=${this.path}`, `CACHE=${homedir()}/.npm`, `AS=${this.user}`]
    return ['unshare', ['--mount', ...outside, 'sh', '-ec', mounts.join('\n'), 'sh', ...inside, ...cd, ...args]]
  }
}

/** The files that `.dockerignore` lets through; it names each. */
function context(): ReadonlySet<string> {
  const [first, ...rest] = readFileSync(join(ROOT, '.dockerignore'), 'utf8')
    .split('\n')
    .filter((line) => /^[^#]/.test(line))
  expect(first).toBe('*')
  expect(rest.filter((line) => !/^![\w.-]+$/.test(line))).toEqual([])
  return new Set(rest.map((line) => line.slice(1)))
}

async function buildStage({ instructions }: Stage, root: Root, stages: ReadonlyMap<string, Root>): Promise<void> {
  const sent = context()
  for (const { name, flags, text } of instructions) {
    if (name === 'ENV' || name === 'ARG') {
      const [, variable = '', value = ''] = /^(\w+)=(\S*)$/.exec(text) ?? []
      root.env[variable] = value
    } else if (name === 'WORKDIR') {
      root.workdir = root.at(text)
      mkdirSync(join(root.path, root.workdir), { recursive: true })
    } else if (name === 'USER') root.user = text
    else if (name === 'COPY') {
      const paths = text.split(/\s+/)
      const to = paths.pop() ?? ''
      const from = stages.get(flags.get('from') ?? '')
      expect(flags.has('from'), text).toBe(from !== undefined)
      for (const path of paths) {
        if (from === undefined) expect(sent, '.dockerignore').toContain(path)
        root.copy(from === undefined ? join(ROOT, path) : join(from.path, path), to, to.endsWith('/'))
      }
    } else if (name === 'RUN') {
      const [program, args] = root.command(['/bin/sh', '-c', text])
      await run(program, args, { maxBuffer: 2 ** 24 })
    } else expect(['VOLUME', 'EXPOSE', 'HEALTHCHECK', 'ENTRYPOINT']).toContain(name)
  }
}

function textOf(stage: Stage, name: string): string {
  const [found, ...others] = stage.instructions.filter((instruction) => instruction.name === name)
  if (found === undefined || others.length > 0) throw new Error(`the stage has not one ${name}`)
  return found.text
}

test('both stages are of one image, of a Node that is supported', () => {
  expect(STAGES.map(({ name, image }) => [name, image])).toEqual([
    ['build', expect.stringMatching(/^node:2[24]-bookworm-slim$/)],
    [undefined, STAGES[0]?.image],
  ])
})

test.skipIf(!isPossible)(
  'its steps, in clean roots, give a server that runs as another user from a read-only file system',
  () =>
    withTempDir(async (directory) => {
      const stages = new Map<string, Root>()
      for (const [i, stage] of STAGES.entries()) {
        const root = new Root(join(directory, `stage ${i}`))
        await buildStage(stage, root, stages)
        stages.set(stage.name ?? '', root)
      }
      const [image, stage] = [stages.get(''), STAGES.at(-1)]
      if (image === undefined || stage === undefined) throw new Error('the last stage has a name')
      expect(readdirSync(join(image.path, 'app')).sort()).toEqual(['LICENSE', 'dist', 'node_modules', 'package.json'])
      const packages = readdirSync(join(image.path, 'app/node_modules'))
      expect(packages).toContain('classic-level')
      for (const name of ['typescript', 'vitest', 'rolldown', 'preact']) expect(packages).not.toContain(name)
      const { stdout } = await run('du', ['-sm', join(image.path, 'app')])
      console.info(`the image has ${stdout.split('\t')[0]} MB beside Node`)

      const volume = textOf(stage, 'VOLUME')
      const entry = JSON.parse(textOf(stage, 'ENTRYPOINT')) as string[]
      const [program, args] = image.command([...entry, '--insecure', '--port', '0'], {}, volume)
      const started = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] })
      server = started
      const ended = once(started, 'exit')
      const [line] = (await once(createInterface({ input: started.stdout }), 'line')) as [string]
      const port = /http:\/\/[\w.]+:(\d+)/.exec(line)?.[1] ?? line
      expect((await fetch(`http://127.0.0.1:${port}/v1/kv/hello`, { method: 'PUT', body: 'world' })).status).toBe(200)
      expect(statSync(join(image.path, volume, 'CURRENT')).uid).toBe(NODE_USER)

      const check = JSON.parse(textOf(stage, 'HEALTHCHECK').replace(/^.*?CMD /, '')) as string[]
      const isHealthy = (at: string): Promise<boolean> =>
        run(...image.command(check, { PERKV_PORT: at }, volume)).then(
          () => true,
          () => false,
        )
      expect([await isHealthy(port), await isHealthy('1')]).toEqual([true, false])
      started.kill('SIGTERM')
      expect(await ended).toEqual([0, null])
    }),
  300_000,
)
