// Takes the lease `leader` at the server of the first argument, renews it, and commits under its fence until it is refused. Then again.
import { setTimeout as sleep } from 'node:timers/promises'

const [, , url, holder, ttl] = process.argv
const ttlMs = Number(ttl)

/** Asks until there is an answer: the server may be killed. */
async function send(method, path, body) {
  for (;;) {
    try {
      const headers = { 'content-type': 'application/json' }
      const answer = await fetch(`${url}${path}`, { method, headers, body: JSON.stringify(body) })
      if (answer.status !== 503) return { status: answer.status, body: await answer.json() }
    } catch {}
    await sleep(10)
  }
}

for (;;) {
  const lease = await send('PUT', '/v1/leases/leader', { holder, ttl_ms: ttlMs, wait_ms: 60_000 })
  if (lease.status !== 200) continue
  const { fence } = lease.body
  console.log(`holds ${fence}`)
  for (let renewedMs = performance.now(); ; ) {
    const ops = [{ op: 'put', key: 'work', value: `${fence}` }]
    const done = await send('POST', '/v1/txn', { checks: [{ lease: 'leader', fence }], ops })
    if (done.status !== 200) break
    if (performance.now() - renewedMs < ttlMs / 3) continue
    const renewed = await send('PUT', '/v1/leases/leader', { holder, ttl_ms: ttlMs, fence })
    if (renewed.status !== 200) break
    renewedMs = performance.now()
  }
  console.log(`lost ${fence}`)
}
