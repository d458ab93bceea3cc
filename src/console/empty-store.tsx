import type { JSX } from 'preact'
import { CopyButton } from './copy.js'
import { Empty } from './parts.js'
import { addressOf } from './route.js'
import { BASE } from './server.js'
import { useSession } from './session.js'

/** What to do first. */
export function EmptyStore(): JSX.Element {
  const { server, access } = useSession()
  const token = server.token === undefined ? '' : ' -H "Authorization: Bearer $PERKV_TOKEN"'
  const line = `curl -X PUT ${BASE}/v1/kv/hello -d world${token}`
  return (
    <section class="lead-on" aria-label="First steps">
      <Empty>The store is empty.</Empty>
      {access.may_write && (
        <>
          <p>Write a key from a shell, or give its name above:</p>
          <div class="bar">
            <code class="bytes">{line}</code>
            <CopyButton text={() => line}>Copy</CopyButton>
          </div>
        </>
      )}
      <p>
        {access.may_write && (
          <>
            <a href={addressOf('step')}>Step a transaction by hand</a> to see how it works, or read{' '}
          </>
        )}
        the <a href={`${BASE}/docs`}>reference of the HTTP API</a>. The file <code class="bytes">docs/tutorial.md</code>{' '}
        of PerKV leads through all of it.
      </p>
    </section>
  )
}
