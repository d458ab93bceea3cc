import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { History } from './answers.js'
import { Columns } from './columns.js'
import { ExpiryEditor } from './expiry-editor.js'
import { KeyTimes } from './key-times.js'
import { Failure, KeyText, Panel, Ts } from './parts.js'
import { addressOf } from './route.js'
import { useSession } from './session.js'
import { useLoaded } from './use-loaded.js'
import { conflictOf, ValueEditor } from './value-editor.js'
import { ValuePanel } from './value-panel.js'
import { versionAt, versionNow } from './version-at.js'
import { VersionEnd } from './version-end.js'
import { idOf, jsonBytes, shown, sizeOf, type WireBytes } from './wire-bytes.js'

type Mode = 'look' | 'edit' | 'expiry' | 'delete'

export function KeyView({ name }: { readonly name: WireBytes }): JSX.Element {
  const { server, access, at } = useSession()
  const history = useLoaded(
    async (signal) => {
      const [history, nowTs] = await Promise.all([
        server.percolator<History>('mvcc_get_by_key', { key: name }, signal),
        server.tso(signal),
      ])
      return { ...history, nowTs }
    },
    [server, idOf(name)],
  )
  const [mode, setMode] = useState<Mode>('look')
  const [error, setError] = useState<unknown>()
  const present =
    history.value && (at === undefined ? versionNow(history.value, history.value.nowTs) : versionAt(history.value, at))
  const mayWrite = access.may_write && at === undefined
  const done = (): void => {
    setMode('look')
    setError(undefined)
    history.reload()
  }
  const remove = async (): Promise<void> => {
    if (present === undefined) return
    try {
      await server.db.delete(jsonBytes(name), { ifMatch: present.commitTs })
      done()
    } catch (failure) {
      setError(conflictOf(failure) ?? failure)
    }
  }

  return (
    <>
      <header class="view-head">
        <Crumbs name={name} />
        <h1 class="key">
          <KeyText of={name} />
        </h1>
        <p class="facts">
          {present !== undefined && (
            <>
              version <Ts ts={present.commitTs} />
              <VersionEnd of={present} />
            </>
          )}
          {history.value !== undefined && present === undefined && (
            <span>{at === undefined ? 'absent' : 'absent at that time'}</span>
          )}
          {history.value?.lock && (
            <a class="badge locked" href={addressOf('locks')}>
              locked
            </a>
          )}
          <span class="quiet">key of {sizeOf(name)} bytes</span>
          <button type="button" class="small" onClick={history.reload}>
            Reload
          </button>
        </p>
      </header>
      <Failure error={history.error ?? error} />
      {history.value !== undefined && mode === 'edit' && (
        <ValueEditor name={name} present={present} onDone={done} onCancel={() => setMode('look')} />
      )}
      {present !== undefined && mayWrite && mode === 'expiry' && (
        <ExpiryEditor name={name} present={present} onDone={done} onCancel={() => setMode('look')} />
      )}
      {present !== undefined && mode !== 'edit' && (
        <ValuePanel
          key={idOf(name)}
          value={present.value}
          {...(mayWrite && { actions: <Actions mode={mode} setMode={setMode} remove={remove} /> })}
        />
      )}
      {history.value !== undefined && present === undefined && mode !== 'edit' && mayWrite && (
        <p>
          <button type="button" onClick={() => setMode('edit')}>
            Put a value
          </button>
        </p>
      )}
      {history.value !== undefined && mode !== 'edit' && (
        <KeyTimes name={name} history={history.value} nowTs={history.value.nowTs} onRestored={done} />
      )}
      {history.value !== undefined && (
        <Panel
          title="Columns"
          aside={
            <span class="quiet">newest on top; a click on a version’s time leads there, to look or to restore</span>
          }
        >
          <Columns name={name} history={history.value} at={at} travels />
        </Panel>
      )}
    </>
  )
}

function Actions(props: {
  readonly mode: Mode
  readonly setMode: (mode: Mode) => void
  readonly remove: () => void
}): JSX.Element {
  const { mode, setMode, remove } = props
  if (mode === 'delete')
    return (
      <div class="buttons">
        <button type="button" class="danger" onClick={remove}>
          Delete for good
        </button>
        <button type="button" onClick={() => setMode('look')}>
          Keep
        </button>
      </div>
    )
  return (
    <div class="buttons">
      <button type="button" onClick={() => setMode('edit')}>
        Edit
      </button>
      <button type="button" onClick={() => setMode('expiry')}>
        Expiry
      </button>
      <button type="button" onClick={() => setMode('delete')}>
        Delete
      </button>
    </div>
  )
}

export function Crumbs({ name }: { readonly name: WireBytes }): JSX.Element {
  const parts = typeof name === 'string' ? name.split('/').slice(0, -1) : []
  return (
    <nav class="crumbs" aria-label="Folders">
      <a href={addressOf('browse')}>all keys</a>
      {parts.map((part, i) => {
        const prefix = `${parts.slice(0, i + 1).join('/')}/`
        return (
          <a key={prefix} href={addressOf('browse', prefix)}>
            <bdi>{shown(part)}/</bdi>
          </a>
        )
      })}
    </nav>
  )
}
