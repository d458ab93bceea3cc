import type { JSX } from 'preact'
import type { Leases, Version } from './answers.js'
import { Countdown } from './countdown.js'
import { Ts } from './parts.js'
import { useSession } from './session.js'
import { useLoaded } from './use-loaded.js'
import { shown } from './wire-bytes.js'

/** The expiry or the lease that ends a version. */
export function VersionEnd({ of: { expireTs, leaseFence } }: { readonly of: Version }): JSX.Element {
  return (
    <>
      {expireTs !== undefined && (
        <span>
          <ExpiresIn ts={expireTs} />, at <Ts ts={expireTs} />
        </span>
      )}
      {leaseFence !== undefined && <LeaseOf key={leaseFence} fence={leaseFence} />}
    </>
  )
}

export function ExpiresIn({ ts }: { readonly ts: number }): JSX.Element {
  return <Countdown to={ts} label="expires in " over="expired" />
}

/** The name is hidden where the token does not cover it. */
function LeaseOf({ fence }: { readonly fence: number }): JSX.Element {
  const { server } = useSession()
  const { value } = useLoaded((signal) => server.get<Leases>('/v1/leases?limit=10000', signal), [server, fence])
  const name = value?.leases.find((lease) => lease.fence === fence)?.name
  return (
    <span>
      goes with the lease {name !== undefined && <bdi class="bytes">{shown(name)}</bdi>} of fence{' '}
      <span class="number">{fence}</span>
    </span>
  )
}
