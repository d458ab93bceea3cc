import type { JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { Access, Status } from './answers.js'
import { BrowseView } from './browse-view.js'
import { DiffView } from './diff-view.js'
import { FeedView } from './feed-view.js'
import { useSearchKey } from './key-search.js'
import { KeyView } from './key-view.js'
import { LeasesView } from './leases-view.js'
import { LiveView } from './live-view.js'
import { LocksView } from './locks-view.js'
import { ObserversView } from './observers-view.js'
import { OwnPrefixes } from './own-prefixes.js'
import { Empty, Failure } from './parts.js'
import { readableMs } from './readable-time.js'
import { addressOf, type Route, useRoute, type View } from './route.js'
import { Refused, Server } from './server.js'
import { SessionProvider } from './session.js'
import { StepView } from './step-view.js'
import { BeforeSafePoint, TimeSlider } from './time-slider.js'
import { storedToken, TokenField } from './token-field.js'
import { useLoaded } from './use-loaded.js'
import { idOf, shown } from './wire-bytes.js'

const LINKS: readonly (readonly [View, string])[] = [
  ['browse', 'Browse'],
  ['step', 'Step'],
  ['locks', 'Locks'],
  ['leases', 'Leases'],
  ['live', 'Live'],
  ['observers', 'Observers'],
  ['feed', 'Feed'],
]

const STATUS_EVERY_MS = 5000
/** Until the server has reported the rights of the token. */
const NOTHING: Access = { may_write: false }

export function App(): JSX.Element {
  const route = useRoute()
  useSearchKey()
  const [token, setToken] = useState(storedToken)
  const { at } = route
  const server = useMemo(() => new Server(token), [token])
  useEffect(() => () => server.close(), [server])
  const { value: status, error } = useLoaded(
    (signal) => server.get<Status>('/v1/status', signal),
    [server],
    STATUS_EVERY_MS,
  )
  const access = status?.access ?? NOTHING
  const safePoint = status?.safe_point ?? 0
  // A new object with each status would load the views again.
  const rights = JSON.stringify(access)
  const session = useMemo(() => ({ server, access, at, safePoint }), [server, rights, at, safePoint])
  const isOfKeys = route.view === 'browse' || route.view === 'key'
  const needsToken = error instanceof Refused && error.status === 401
  const takesToken = useRef(false)
  // The field, with its text, must not disappear while another token is tried.
  if (token !== undefined || needsToken || status?.access.may_write === false) takesToken.current = true

  return (
    <SessionProvider value={session}>
      <a class="skip" href="#main">
        Skip to content
      </a>
      <header class="top">
        <a class="name" href={addressOf('browse')}>
          Per<b>KV</b>
        </a>
        <nav class="views" aria-label="Views">
          {LINKS.map(([view, label]) => (
            <a key={view} href={addressOf(view)} aria-current={isCurrent(view, route) ? 'page' : undefined}>
              {label}
            </a>
          ))}
        </nav>
        <div class="rights">
          {status !== undefined && !needsToken && (
            <span class={`badge ${access.may_write ? 'writes' : ''}`}>
              {access.may_write ? 'read and write' : 'read only'}
            </span>
          )}
          {takesToken.current && <TokenField token={needsToken ? undefined : token} onChange={setToken} />}
        </div>
      </header>
      {status !== undefined && isOfKeys && <TimeSlider status={status} />}
      <main id="main" tabIndex={-1}>
        {needsToken && <h1>{token === undefined ? 'Token needed' : 'Wrong token'}</h1>}
        {needsToken && (
          <Empty>
            {token === undefined
              ? 'This server asks for a token. It is kept in this tab only.'
              : 'The server does not know this token: it is mistyped, or was removed. Give another one.'}
          </Empty>
        )}
        {!needsToken && <Failure error={error} />}
        {status !== undefined &&
          !needsToken &&
          (isOfKeys && at !== undefined && at < safePoint ? (
            <BeforeSafePoint safePoint={safePoint} />
          ) : (
            <ViewOf route={route} prefixes={access.prefixes} />
          ))}
      </main>
      {status !== undefined && <Foot status={status} />}
    </SessionProvider>
  )
}

function isCurrent(view: View, route: Route): boolean {
  return view === route.view || (view === 'browse' && (route.view === 'key' || route.view === 'diff'))
}

function ViewOf({ route, prefixes }: { readonly route: Route; readonly prefixes: Access['prefixes'] }): JSX.Element {
  const { view, argument } = route
  useEffect(() => {
    const name = view === 'browse' || view === 'key' ? shown(argument) : view
    document.title = name === '' ? 'PerKV' : `${name} · PerKV`
  }, [view, argument])
  switch (view) {
    case 'key':
      return <KeyView key={idOf(argument)} name={argument} />
    case 'diff':
      return <DiffView key={idOf(argument)} prefix={argument} />
    case 'locks':
      return <LocksView />
    case 'leases':
      return <LeasesView />
    case 'live':
      return <LiveView />
    case 'observers':
      return <ObserversView />
    case 'feed':
      return <FeedView />
    case 'step':
      return <StepView />
    default:
      if (prefixes !== undefined && idOf(argument) === '') return <OwnPrefixes prefixes={prefixes} />
      return <BrowseView key={idOf(argument)} prefix={argument} />
  }
}

function Foot({ status }: { readonly status: Status }): JSX.Element {
  const { version, store, durability, uptime_ms, counts, writable, access } = status
  return (
    <footer class="foot">
      <span>
        PerKV {version} on {store}, {durability}
      </span>
      <span>up {readableMs(uptime_ms)}</span>
      {counts.locks !== undefined && <span>{counts.locks} locks</span>}
      <span>{counts.open_transactions} open transactions</span>
      {!writable && <strong>writes are refused</strong>}
      <a href="docs">HTTP API</a>
      {access.prefixes !== undefined && <span>token reaches {access.prefixes.map(shown).join(', ')}</span>}
    </footer>
  )
}
