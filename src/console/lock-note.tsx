import type { JSX } from 'preact'
import type { LockInfo } from './answers.js'
import { Countdown } from './countdown.js'
import { KeyText, Ts } from './parts.js'
import { PER_MS } from './readable-time.js'
import { addressOf } from './route.js'
import { idOf } from './wire-bytes.js'

const SHOWN_MAX = 3

/** Says which keys are not shown as they are now, and whose transactions hold them. */
export function LockNote({ locks }: { readonly locks: readonly LockInfo[] }): JSX.Element | null {
  if (locks.length === 0) return null
  return (
    <section class="note" aria-label="Locks in the way">
      {locks.slice(0, SHOWN_MAX).map((lock) => (
        <p key={idOf(lock.key)}>
          <a href={addressOf('key', lock.key)}>
            <KeyText of={lock.key} />
          </a>{' '}
          is locked by the transaction that began at <Ts ts={lock.start_ts} />, primary <KeyText of={lock.primary} />,
          time left: <Countdown to={lock.start_ts + lock.ttl * PER_MS} over="none" />.
        </p>
      ))}
      <p>
        {locks.length > SHOWN_MAX && `${locks.length - SHOWN_MAX} more keys are locked. `}
        Locked keys are shown as they were before, all others as they are. <a href={addressOf('locks')}>Locks</a>
      </p>
    </section>
  )
}
