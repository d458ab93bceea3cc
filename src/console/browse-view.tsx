import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { Pair } from './answers.js'
import { EmptyStore } from './empty-store.js'
import { Crumbs } from './key-view.js'
import { type Entry, type ListPage, loadListPage, loadValues } from './list-page.js'
import { LockNote } from './lock-note.js'
import { Empty, Failure, KeyText, Ts } from './parts.js'
import { addressOf, go } from './route.js'
import { useSession } from './session.js'
import { useLoaded } from './use-loaded.js'
import { ExpiresIn } from './version-end.js'
import { idOf, preview, shown, type WireBytes } from './wire-bytes.js'

const VALUE_CHARACTERS = 120
/** Stands for the version of a key that has only a lock yet. */
const UNBORN: Pair = { key: '', commit_ts: 0 }

export function BrowseView({ prefix }: { readonly prefix: WireBytes }): JSX.Element {
  const { server, access, at } = useSession()
  /** The first keys of this page and of the pages before it. */
  const [starts, setStarts] = useState<readonly (Uint8Array | undefined)[]>([undefined])
  const page = useLoaded(
    (signal) => loadListPage(server, { prefix, from: starts.at(-1), at }, signal),
    [server, idOf(prefix), at, starts],
  )
  const values = useValues(page.value)
  const { next } = page.value ?? {}
  return (
    <>
      <header class="view-head">
        <Crumbs name={prefix} />
        <h1>Browse</h1>
        <PrefixForm key={idOf(prefix)} prefix={prefix} mayCreate={access.may_write && at === undefined} />
      </header>
      <Failure error={page.error} />
      {page.error !== undefined && access.prefixes !== undefined && (
        <p>
          This token reaches{' '}
          {access.prefixes.map((reached) => (
            <a key={idOf(reached)} class="item" href={addressOf('browse', reached)}>
              <KeyText of={reached} />
            </a>
          ))}
        </p>
      )}
      {page.value !== undefined && <LockNote locks={page.value.passed} />}
      {page.value !== undefined && <List page={page.value} prefix={prefix} values={values} />}
      {page.value === undefined && page.error === undefined && <Empty>Loading…</Empty>}
      <nav class="pages" aria-label="Pages">
        <button type="button" disabled={starts.length === 1} onClick={() => setStarts(starts.slice(0, -1))}>
          Previous
        </button>
        <span>page {starts.length}</span>
        <button type="button" disabled={next === undefined} onClick={() => setStarts([...starts, next])}>
          Next
        </button>
        <button type="button" class="small" onClick={page.reload}>
          Reload
        </button>
        {page.value !== undefined && (
          <span class="quiet">
            as of <Ts ts={page.value.ts} />
          </span>
        )}
      </nav>
    </>
  )
}

/** The values of a page, as they arrive. */
function useValues(page: ListPage | undefined): ReadonlyMap<string, WireBytes> {
  const { server } = useSession()
  const [values, setValues] = useState<ReadonlyMap<string, WireBytes>>(new Map())
  useEffect(() => {
    setValues(new Map())
    if (page === undefined) return
    const stop = new AbortController()
    const add = (pairs: readonly Pair[]): void => {
      if (stop.signal.aborted) return
      // Only the beginning of a value is kept.
      setValues(
        (before) =>
          new Map([
            ...before,
            ...pairs.map(({ key, value = '' }) => [idOf(key), preview(value, VALUE_CHARACTERS)] as const),
          ]),
      )
    }
    loadValues(server, page, add, stop.signal).catch(() => {}) // The keys are shown without values then.
    return () => stop.abort()
  }, [server, page])
  return values
}

function List(props: {
  readonly page: ListPage
  readonly prefix: WireBytes
  readonly values: ReadonlyMap<string, WireBytes>
}): JSX.Element {
  const { page, prefix, values } = props
  const locked = new Set(page.locks.map(({ key }) => idOf(key)))
  const seen = new Set(page.entries.map(({ key }) => idOf(key)))
  /** Keys that have only a lock yet. */
  const unborn = page.locks.filter(({ key }) => !seen.has(idOf(key)) && isDirect(key, prefix))
  if (page.entries.length === 0 && unborn.length === 0)
    return prefix === '' ? <EmptyStore /> : <Empty>There is no key below this prefix.</Empty>
  return (
    <table class="list">
      <caption class="unseen">Keys</caption>
      <thead>
        <tr>
          <th scope="col">key</th>
          <th scope="col">value</th>
          <th scope="col" class="when">
            committed
          </th>
        </tr>
      </thead>
      <tbody>
        {page.entries.map((entry) => (
          <Line
            key={`${entry.pair === undefined} ${idOf(entry.key)}`}
            entry={entry}
            prefix={prefix}
            value={values.get(idOf(entry.key))}
            isLocked={locked.has(idOf(entry.key))}
          />
        ))}
        {unborn.map(({ key }) => (
          <Line key={idOf(key)} entry={{ key, pair: UNBORN }} prefix={prefix} value={undefined} isLocked />
        ))}
      </tbody>
    </table>
  )
}

function isDirect(key: WireBytes, prefix: WireBytes): boolean {
  return !shown(key).slice(shown(prefix).length).includes('/')
}

function Line(props: {
  readonly entry: Entry
  readonly prefix: WireBytes
  readonly value: WireBytes | undefined
  readonly isLocked: boolean
}): JSX.Element {
  const { entry, prefix, value, isLocked } = props
  const { key, pair } = entry
  return (
    <tr class={pair === undefined ? 'folder' : 'key'}>
      <th scope="row">
        <a href={addressOf(pair === undefined ? 'browse' : 'key', key)}>
          <Rest name={key} prefix={prefix} />
        </a>
        {isLocked && <span class="badge locked">locked</span>}
        {pair?.expire_ts !== undefined && (
          <span class="badge">
            <ExpiresIn ts={pair.expire_ts} />
          </span>
        )}
        {pair?.lease_fence !== undefined && (
          <span class="badge" title={`fence ${pair.lease_fence}`}>
            lease
          </span>
        )}
      </th>
      <td class="preview">{value !== undefined && <bdi class="bytes">{shown(value)}</bdi>}</td>
      <td class="when">{pair !== undefined && pair !== UNBORN && <Ts ts={pair.commit_ts} />}</td>
    </tr>
  )
}

/** A key without the prefix that is shown above the list. */
function Rest({ name, prefix }: { readonly name: WireBytes; readonly prefix: WireBytes }): JSX.Element {
  const isText = typeof name === 'string' && typeof prefix === 'string'
  const rest = isText && name.length > prefix.length && name.startsWith(prefix) ? name.slice(prefix.length) : name
  return <KeyText of={rest} />
}

function PrefixForm({ prefix, mayCreate }: { readonly prefix: WireBytes; readonly mayCreate: boolean }): JSX.Element {
  const [text, setText] = useState(typeof prefix === 'string' ? prefix : '')
  const open = (event: Event): void => {
    event.preventDefault()
    go('browse', text)
  }
  return (
    <form class="bar" onSubmit={open}>
      <label for="prefix">Prefix</label>
      <input
        id="prefix"
        class="wide bytes"
        value={text}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button type="submit">Browse</button>
      <button type="button" disabled={text === ''} onClick={() => go('key', text)}>
        {mayCreate ? 'Open or create key' : 'Open key'}
      </button>
    </form>
  )
}
