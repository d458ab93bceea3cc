import { expect, test, vi } from 'vitest'
import { clusterIn } from '../../../../src/store/table/bigtable/app-profile.js'
import { waitForReplication } from '../../../../src/store/table/bigtable/replication.js'

const ADDRESS = { project: 'p', instance: 'i', table: 't' }
const MISSING = /^bigtable:\/\/p\/i\/t: nobody checks .* because the permission bigtable\.appProfiles\.get is missing$/

/** Google's admin API, whose answers are given. Failures have a code of gRPC. */
function fakeAdmin(answer: object | number): {
  readonly names: string[]
  getAppProfile(request: { readonly name: string }): Promise<readonly [object]>
} {
  const names: string[] = []
  return {
    names,
    async getAppProfile({ name }) {
      names.push(name)
      if (typeof answer === 'number') throw Object.assign(new Error('refused'), { code: answer })
      return [answer]
    },
  }
}

test('an app profile says its cluster', async () => {
  const admin = fakeAdmin({ singleClusterRouting: { clusterId: 'c1', allowTransactionalWrites: true } })
  const fail = (): void => expect.unreachable()
  expect(await clusterIn(admin, { ...ADDRESS, appProfile: 'mine' }, fail)).toBe('c1')
  expect(await clusterIn(admin, ADDRESS, fail)).toBe('c1')
  expect(admin.names).toEqual(['projects/p/instances/i/appProfiles/mine', 'projects/p/instances/i/appProfiles/default'])
})

test('where it cannot be asked the cluster is unknown, and a missing permission is said', async () => {
  const said: string[] = []
  const say = (message: string): void => void said.push(message)
  expect(await clusterIn(fakeAdmin(12), ADDRESS, say)).toBeUndefined() // An emulator.
  expect(await clusterIn(fakeAdmin({ multiClusterRoutingUseAny: {} }), ADDRESS, say)).toBeUndefined()
  expect(said).toEqual([])
  expect(await clusterIn(fakeAdmin(7), ADDRESS, say)).toBeUndefined()
  expect(said).toEqual([expect.stringMatching(MISSING)])
  await expect(clusterIn(fakeAdmin(5), ADDRESS, say)).rejects.toThrow('bigtable://p/i/t: refused')
})

test('where the admin API is away the cluster is unknown, which is said', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  try {
    for (const code of [14, 8, 16]) {
      const said: string[] = []
      const cluster = clusterIn(fakeAdmin(code), ADDRESS, (message) => void said.push(message))
      await Promise.all([expect(cluster).resolves.toBeUndefined(), vi.advanceTimersByTimeAsync(60_000)])
      expect(said).toEqual([
        expect.stringMatching(
          /^bigtable:\/\/p\/i\/t: nobody checks .* because the app profile cannot be read \(.*refused\)$/,
        ),
      ])
    }
  } finally {
    vi.useRealTimers()
  }
})

test('all is replicated when Google says so of a token', async () => {
  const asked: (string | undefined)[] = []
  const waits: string[] = []
  const answers = [false, false, true]
  await waitForReplication(
    {
      async generateConsistencyToken({ name }) {
        asked.push(name)
        return [{ consistencyToken: 'token' }]
      },
      async checkConsistency({ name, consistencyToken }) {
        asked.push(`${name} ${consistencyToken}`)
        return [{ consistent: answers.shift() ?? false }]
      },
    },
    ADDRESS,
    (message) => void waits.push(message),
    1,
  )
  const name = 'projects/p/instances/i/tables/t'
  expect(asked).toEqual([name, `${name} token`, `${name} token`, `${name} token`])
  expect(waits).toEqual([expect.stringMatching(/^bigtable:\/\/p\/i\/t: waits until .* before \d{4}-.*Z is replicated/)])
})
