import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { Pair } from './answers.js'
import { useFolderSums } from './folder-sum.js'
import { PrefixActions, SelectionActions } from './key-actions.js'
import { KeyList } from './key-list.js'
import { KeySearch } from './key-search.js'
import { Crumbs } from './key-view.js'
import { type ListPage, loadListPage, loadValues } from './list-page.js'
import { LockNote } from './lock-note.js'
import { PageButtons } from './page-buttons.js'
import { Empty, Failure, KeyText, Ts } from './parts.js'
import { addressOf, go } from './route.js'
import type { Server } from './server.js'
import { useSession } from './session.js'
import { useArriving } from './use-arriving.js'
import { useLoaded } from './use-loaded.js'
import { idOf, preview, type WireBytes } from './wire-bytes.js'

const VALUE_CHARACTERS = 120

export function BrowseView({ prefix }: { readonly prefix: WireBytes }): JSX.Element {
  const { server, access, at } = useSession()
  /** The first keys of this page and of the pages before it. */
  const [starts, setStarts] = useState<readonly (Uint8Array | undefined)[]>([undefined])
  const page = useLoaded(
    (signal) => loadListPage(server, { prefix, from: starts.at(-1), at }, signal),
    [server, idOf(prefix), at, starts],
  )
  const values = useArriving<ListPage, WireBytes>(
    page.value,
    (of, add, signal) => readPreviews(server, of, add, signal),
    [server],
  )
  const sums = useFolderSums(page.value)
  const [selected, select] = useState<readonly Pair[]>([])
  useEffect(() => select([]), [page.value])
  const { next } = page.value ?? {}
  return (
    <>
      <header class="view-head">
        <Crumbs name={prefix} />
        <h1>Browse</h1>
        <PrefixForm key={idOf(prefix)} prefix={prefix} mayCreate={access.may_write && at === undefined} />
        <KeySearch key={`search ${idOf(prefix)} ${at}`} prefix={prefix} />
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
      {page.value !== undefined && selected.length > 0 && (
        <SelectionActions
          selected={selected}
          ts={page.value.ts}
          onClear={() => select([])}
          onDeleted={() => {
            select([])
            page.reload()
          }}
        />
      )}
      {page.value !== undefined && (
        <KeyList page={page.value} prefix={prefix} values={values} sums={sums} selected={selected} onSelect={select} />
      )}
      {page.value === undefined && page.error === undefined && <Empty>Loading…</Empty>}
      <PageButtons starts={starts} next={next} onGo={setStarts}>
        <button type="button" class="small" onClick={page.reload}>
          Reload
        </button>
        {page.value !== undefined && (
          <span class="quiet">
            as of <Ts ts={page.value.ts} />
          </span>
        )}
      </PageButtons>
      <PrefixActions
        key={`actions ${idOf(prefix)}`}
        prefix={prefix}
        ts={page.value?.entries.length === 0 ? undefined : page.value?.ts}
        onDeleted={page.reload}
      />
    </>
  )
}

/** Reads the values of a page. Only the beginning of each is kept. */
function readPreviews(
  server: Server,
  page: ListPage,
  add: (more: ReadonlyMap<string, WireBytes>) => void,
  signal: AbortSignal,
): Promise<void> {
  const addPairs = (pairs: readonly Pair[]): void =>
    add(new Map(pairs.map(({ key, value = '' }) => [idOf(key), preview(value, VALUE_CHARACTERS)])))
  return loadValues(server, page, addPairs, signal)
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
