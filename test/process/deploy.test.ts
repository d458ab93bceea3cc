import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { readConfig } from '../../src/server/config.js'
import { parseDockerfile } from './dockerfile.js'
import { CLI, withTempDir } from './server-process.js'

/** docs/deploy/ as far as neither systemd nor a container engine is there to run it. */

const DEPLOY = fileURLToPath(new URL('../../docs/deploy/', import.meta.url))
const UNIT = readFileSync(join(DEPLOY, 'perkv.service'), 'utf8')
/** LevelDB keeps a thousand tables open; the rest is for the log, the lock, pipes and the listener. */
const DESCRIPTORS_MIN = DEFAULT_LIMITS.connectionsMax + 1000 + 200
const TOKEN = '0123456789abcdefghij'
/** Of `systemd-analyze security`, from 0 to 10; it was 1.5. */
const EXPOSURE_MAX = 2

const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0
if (!hasSystemd) console.warn('perkv.service is not verified: there is no systemd-analyze; apt-get install systemd')

/** All values of a setting, in order. */
function settings(name: string): string[] {
  return [...UNIT.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].map(([, value = '']) => value)
}

interface Compose {
  readonly services: {
    readonly perkv: {
      readonly build: string
      readonly ports: readonly string[]
      readonly volumes: readonly string[]
      readonly environment: Readonly<Record<string, string>>
      readonly secrets: readonly string[]
      readonly ulimits: { readonly nofile: number }
      readonly stop_grace_period: string
    }
  }
  readonly secrets: Readonly<Record<string, unknown>>
  readonly volumes: Readonly<Record<string, unknown>>
}

interface SharedCompose {
  readonly services: Readonly<
    Record<
      string,
      {
        readonly build?: { readonly context: string; readonly args: Readonly<Record<string, string>> }
        readonly image: string
        readonly entrypoint?: readonly string[]
        readonly ports?: readonly string[]
        readonly volumes?: readonly string[]
        readonly environment: Readonly<Record<string, string>>
        readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>
        readonly healthcheck?: { readonly test: readonly string[] }
        readonly ulimits?: { readonly nofile: number }
        readonly stop_grace_period?: string
      }
    >
  >
  readonly volumes: Readonly<Record<string, unknown>>
}

interface Labels {
  readonly [name: string]: string
}

interface Manifest {
  readonly ServiceAccount: { readonly metadata: { readonly name: string } }
  readonly Service: {
    readonly spec: {
      readonly selector: Labels
      readonly sessionAffinity: string
      readonly ports: readonly { readonly port: number; readonly targetPort: string }[]
    }
  }
  readonly PodMonitor: {
    readonly spec: {
      readonly selector: { readonly matchLabels: Labels }
      readonly podMetricsEndpoints: readonly {
        readonly port: string
        readonly authorization: { readonly credentials: Labels }
      }[]
    }
  }
  readonly Deployment: {
    readonly spec: {
      readonly replicas: number
      readonly selector: { readonly matchLabels: Labels }
      readonly template: {
        readonly metadata: { readonly labels: Labels }
        readonly spec: {
          readonly serviceAccountName: string
          readonly terminationGracePeriodSeconds: number
          readonly securityContext: { readonly runAsUser: number }
          readonly containers: readonly {
            readonly ports: readonly { readonly name: string; readonly containerPort: number }[]
            readonly env: readonly { readonly name: string; readonly value?: string }[]
            readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[]
            readonly livenessProbe: { readonly httpGet: Labels }
            readonly readinessProbe: { readonly httpGet: Labels }
            readonly lifecycle: { readonly preStop: { readonly exec: { readonly command: readonly string[] } } }
          }[]
          readonly volumes: readonly { readonly name: string }[]
        }
      }
    }
  }
  readonly PodDisruptionBudget: {
    readonly spec: { readonly maxUnavailable: number; readonly selector: { readonly matchLabels: Labels } }
  }
}

/** The container's user, `node` in Node's images. */
const IMAGE_USER = 1000

test.skipIf(!hasSystemd)('systemd finds no fault with the unit, and little that it may do', () => {
  const verified = spawnSync('systemd-analyze', ['verify', join(DEPLOY, 'perkv.service')], { encoding: 'utf8' })
  expect([verified.status, verified.stderr]).toEqual([0, ''])
  const args = ['security', '--offline=true', '--no-pager', join(DEPLOY, 'perkv.service')]
  const exposure = /Overall exposure level for perkv.service: ([\d.]+)/.exec(
    execFileSync('systemd-analyze', args, { encoding: 'utf8' }),
  )
  expect(Number(exposure?.[1])).toBeLessThan(EXPOSURE_MAX)
})

test('the command of the unit serves with its environment, a directory and a token file', () =>
  withTempDir(async (directory) => {
    const [state, credentials, bin] = ['state', 'credentials', 'bin'].map((name) => join(directory, name)) as [
      string,
      string,
      string,
    ]
    for (const folder of [join(state, 'perkv'), credentials, bin]) mkdirSync(folder, { recursive: true })
    writeFileSync(join(credentials, 'tokens'), `rw ${TOKEN}\n`, { mode: 0o600 })
    // As npm installs it.
    writeFileSync(join(bin, 'perkv'), `#!/bin/sh\nexec '${process.execPath}' '${CLI}' "$@"\n`, { mode: 0o755 })
    const environment = settings('Environment')
      .map((each) => each.replaceAll('%S', state).replaceAll('%d', credentials).split('='))
      .map(([name = '', value = '']) => [name, value])
    const [command = ''] = settings('ExecStart')
    const [program = '', ...args] = command.split(' ')
    const env = { ...Object.fromEntries(environment), PATH: `${bin}:/usr/bin:/bin`, PERKV_PORT: '0' }
    const server = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'inherit'] })
    const ended = once(server, 'exit')
    try {
      const first = once(createInterface({ input: server.stdout }), 'line')
      const [line] = (await Promise.race([first, ended])) as [string]
      expect(line).toContain(join(state, 'perkv'))
      const url = `${/http:\/\/[\d.:]+/.exec(line)?.[0]}/v1/kv/hello`
      expect((await fetch(url)).status).toBe(401)
      const headers = { authorization: `Bearer ${TOKEN}` }
      expect((await fetch(url, { method: 'PUT', body: 'world', headers })).status).toBe(200)
    } finally {
      server.kill('SIGTERM')
    }
    expect(await ended).toEqual([0, null])
  }))

test('the unit has room for all connections, and time for requests in flight', () => {
  expect(settings('LimitNOFILE').map(Number)).toEqual([expect.toSatisfy((count: number) => count >= DESCRIPTORS_MIN)])
  expect(settings('TimeoutStopSec').map(Number)).toEqual([expect.toSatisfy((seconds: number) => seconds > 10)])
})

test('the compose file builds the image, and agrees with it and with the unit', () => {
  const compose = parse(readFileSync(join(DEPLOY, 'compose.yaml'), 'utf8')) as Compose
  const { perkv } = compose.services
  const context = join(DEPLOY, perkv.build)
  const image = parseDockerfile(readFileSync(join(context, 'Dockerfile'), 'utf8')).at(-1)
  const textOf = (name: string): string | undefined => image?.instructions.find((each) => each.name === name)?.text
  expect(perkv.ports).toEqual([`127.0.0.1:${textOf('EXPOSE')}:${textOf('EXPOSE')}`])
  expect(perkv.volumes).toEqual([`${Object.keys(compose.volumes)}:${textOf('VOLUME')}`])
  expect(perkv.secrets).toEqual(Object.keys(compose.secrets))
  const config = readConfig([], { ...perkv.environment })
  expect(config.tokenFile).toBe(`/run/secrets/${perkv.secrets}`)
  expect(perkv.ulimits.nofile).toBe(Number(settings('LimitNOFILE')))
  expect(perkv.stop_grace_period).toBe(`${settings('TimeoutStopSec')}s`)
})

test("the compose file with PostgreSQL makes the table, and starts servers on it by the image's command", () => {
  const text = readFileSync(join(DEPLOY, 'compose-postgres.yaml'), 'utf8')
  const { services, volumes } = parse(text, { merge: true }) as SharedCompose
  const { postgres, init, ...servers } = services
  const store = 'postgres://perkv@postgres/perkv'
  const address = new URL(store)
  const stage = parseDockerfile(readFileSync(join(DEPLOY, '../../Dockerfile'), 'utf8')).at(-1)
  const imageHas = (name: string): string =>
    stage?.instructions.find((instruction) => instruction.name === name)?.text ?? name
  const [node, program, , ...flags] = JSON.parse(imageHas('ENTRYPOINT')) as string[]

  const password = text.match(/\$\{PGPASSWORD:\?.+\}/)?.[0]
  expect(postgres?.environment).toEqual({ POSTGRES_USER: address.username, POSTGRES_PASSWORD: password })
  expect(address.hostname).toBe('postgres')
  expect(postgres?.volumes).toEqual([`${Object.keys(volumes)}:/var/lib/postgresql/data`])
  expect(postgres?.healthcheck?.test).toContain('pg_isready')
  expect(init?.entrypoint).toEqual([node, program, 'store', 'init', store])
  expect(init?.depends_on).toEqual({ postgres: { condition: 'service_healthy' } })

  expect(Object.keys(servers)).toEqual(['perkv1', 'perkv2'])
  for (const [name, server] of Object.entries(servers)) {
    const config = readConfig(flags, { ...server.environment })
    expect(config).toMatchObject({ store: { place: store }, advertise: `http://${name}:${imageHas('EXPOSE')}` })
    expect(server.environment['PGPASSWORD']).toBe(password)
    expect(server.ports).toEqual([`127.0.0.1:740${name.at(-1)}:${imageHas('EXPOSE')}`]) // Without tokens: this machine alone.
    expect(server.depends_on).toEqual({ init: { condition: 'service_completed_successfully' } })
    expect(server.build).toEqual({ context: '../..', args: { STORE_CLIENT: 'pg@8' } })
    expect(server.image).toBe(init?.image)
    expect(server.ulimits?.nofile).toBe(Number(settings('LimitNOFILE')))
    expect(server.stop_grace_period).toBe(`${settings('TimeoutStopSec')}s`)
  }
})

test('the manifest runs servers that share a table, find each other, and are stopped as a container is', () => {
  const documents = parseAllDocuments(readFileSync(join(DEPLOY, 'kubernetes.yaml'), 'utf8'))
  expect(documents.flatMap(({ errors }) => errors)).toEqual([])
  const objects = documents.map((document) => document.toJS() as { readonly kind: string })
  const manifest = Object.fromEntries(objects.map((object) => [object.kind, object])) as unknown as Manifest
  const { ServiceAccount, Service, Deployment, PodDisruptionBudget, PodMonitor } = manifest
  const { metadata, spec } = Deployment.spec.template
  const [perkv, ...others] = spec.containers
  if (perkv === undefined) throw new Error('there is no container')
  expect(others).toEqual([])

  expect(Deployment.spec.replicas).toBe(3)
  for (const labels of [Service.spec.selector, Deployment.spec.selector.matchLabels, metadata.labels])
    expect(labels).toEqual(PodDisruptionBudget.spec.selector.matchLabels)
  expect(PodDisruptionBudget.spec.maxUnavailable).toBeLessThan(Deployment.spec.replicas)
  expect(spec.serviceAccountName).toBe(ServiceAccount.metadata.name)
  expect(spec.securityContext.runAsUser).toBe(IMAGE_USER)

  const address = '10.0.0.7'
  const env = perkv.env.map(({ name, value = address }) => [name, value.replace('$(POD_IP)', address)])
  const { POD_IP, ...variables } = Object.fromEntries(env)
  expect(POD_IP).toBe(address)
  const config = readConfig([], variables)
  expect(config.store).toMatchObject({ place: 'bigtable://my-project/my-instance/perkv' })
  const port = perkv.ports.find(({ name }) => name === Service.spec.ports[0]?.targetPort)?.containerPort
  const image = parseDockerfile(readFileSync(join(DEPLOY, '../../Dockerfile'), 'utf8')).at(-1)
  expect(image?.instructions.find(({ name }) => name === 'EXPOSE')?.text).toBe(`${port}`)
  expect(config.port).toBe(port)
  expect(config.advertise).toBe(`http://${address}:${port}`)
  const [scraped] = PodMonitor.spec.podMetricsEndpoints
  expect(perkv.ports.map(({ name }) => name)).toContain(scraped?.port)
  expect(scraped?.authorization.credentials).toEqual({ name: 'perkv-metrics', key: 'token' }) // A server with tokens answers no other scrape.
  expect(PodMonitor.spec.selector.matchLabels).toEqual(metadata.labels)
  const [mount] = perkv.volumeMounts
  expect(config.tokenFile).toBe(`${mount?.mountPath}/tokens`)
  expect(spec.volumes.map(({ name }) => name)).toEqual([mount?.name])

  expect([perkv.livenessProbe.httpGet['path'], perkv.readinessProbe.httpGet['path']]).toEqual(['/livez', '/readyz'])
  const pause = Number(perkv.lifecycle.preStop.exec.command.at(-1))
  expect(spec.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(pause + 10)
  // Interactive transactions live in one server.
  expect(Service.spec.sessionAffinity).toBe('ClientIP')
})
