import type { JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { type Change, kindOf, type Previews } from './key-diff.js'
import { Crumbs } from './key-view.js'
import { LockNote } from './lock-note.js'
import { PageButtons } from './page-buttons.js'
import { Empty, Failure, KeyText, Ts } from './parts.js'
import { type DiffRequest, loadDiffPage, loadPreviews } from './prefix-diff.js'
import { timeOf } from './readable-time.js'
import { addressOf, useRoute } from './route.js'
import { useSession } from './session.js'
import { typedTime } from './typed-time.js'
import { UndoPanel } from './undo-panel.js'
import { useArriving } from './use-arriving.js'
import { useLoaded } from './use-loaded.js'
import { idOf, shown, type WireBytes } from './wire-bytes.js'

/** The keys below a prefix whose versions at two times are not the same. */
export function DiffView({ prefix }: { readonly prefix: WireBytes }): JSX.Element {
  const { server, safePoint } = useSession()
  const { from, to } = useRoute()
  /** Of a diff up to now, "now" is one moment for all of its pages. */
  const upTo = useLoaded(async (signal) => to ?? (await server.tso(signal)), [server, from, to])
  const asked = useMemo(
    () => (from === undefined || upTo.value === undefined ? undefined : { prefix, from, to: upTo.value }),
    [idOf(prefix), from, upTo.value],
  )
  return (
    <>
      <header class="view-head">
        <Crumbs name={prefix} />
        <h1>What changed</h1>
        <DiffForm key={`${idOf(prefix)} ${from} ${to}`} prefix={prefix} from={from} to={to} onAgain={upTo.reload} />
      </header>
      <Failure error={upTo.error} />
      {from === undefined && <Empty>Compares the keys below a prefix at two times.</Empty>}
      {from !== undefined && from < safePoint && (
        <Empty>
          {timeOf(from) ?? from} is before the safe point: versions of then may be collected already. The earliest time
          is <a href={addressOf('diff', prefix, { from: safePoint, to })}>{timeOf(safePoint)}</a>.
        </Empty>
      )}
      {asked !== undefined && asked.from >= safePoint && (
        <Changes
          key={`${asked.from} ${asked.to}`}
          asked={asked}
          onUndone={() => {
            if (to === undefined) upTo.reload()
            else location.hash = addressOf('diff', prefix, { from })
          }}
        />
      )}
    </>
  )
}

function DiffForm(props: {
  readonly prefix: WireBytes
  readonly from: number | undefined
  readonly to: number | undefined
  /** Called for a form that is sent as it is: "now" is another moment by then. */
  readonly onAgain: () => void
}): JSX.Element {
  const { server, safePoint } = useSession()
  const { prefix } = props
  const given = {
    prefix: shown(prefix),
    from: props.from === undefined ? '10 min ago' : (timeOf(props.from) ?? String(props.from)),
    to: props.to === undefined ? 'now' : (timeOf(props.to) ?? String(props.to)),
  }
  const [texts, setTexts] = useState(given)
  const [error, setError] = useState<unknown>()
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    try {
      const now = await server.tso()
      // A text that was not touched stands for its timestamp exactly.
      const timeIn = (end: 'from' | 'to'): number | undefined =>
        (texts[end] === given[end] ? props[end] : undefined) ?? typedTime(texts[end], now, safePoint)
      const [from, to] = [timeIn('from'), timeIn('to')]
      if (from === undefined || from >= (to ?? now)) throw new Error('The first time has to be before the second.')
      setError(undefined)
      const address = addressOf('diff', texts.prefix === given.prefix ? prefix : texts.prefix, { from, to })
      if (address === location.hash) props.onAgain()
      else location.hash = address
    } catch (failure) {
      setError(failure)
    }
  }
  const field = (name: keyof typeof given, label: string): JSX.Element => (
    <span class={`version ${name === 'prefix' ? 'wide' : ''}`}>
      <label for={`diff-${name}`}>{label}</label>
      <input
        id={`diff-${name}`}
        class="bytes grows"
        value={texts[name]}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        onInput={(event) => setTexts({ ...texts, [name]: event.currentTarget.value })}
      />
    </span>
  )
  return (
    <>
      <form class="bar" onSubmit={submit}>
        {field('prefix', 'Prefix')}
        {field('from', 'from')}
        {field('to', 'to')}
        <button type="submit">Compare</button>
      </form>
      <Failure error={error} />
    </>
  )
}

function Changes({ asked, onUndone }: { readonly asked: DiffRequest; readonly onUndone: () => void }): JSX.Element {
  const { server, access } = useSession()
  const [starts, setStarts] = useState<readonly (Uint8Array | undefined)[]>([undefined])
  const [compared, setCompared] = useState(0)
  const page = useLoaded(
    (signal) => loadDiffPage(server, asked, starts.at(-1), setCompared, signal),
    [server, asked, starts],
  )
  const [selected, setSelected] = useState<ReadonlyMap<string, Change>>(new Map())
  /** What is about to be undone. */
  const [undo, setUndo] = useState<{ readonly chosen: readonly Change[] | undefined }>()
  const previews = useArriving<readonly Change[], Previews>(
    page.value?.changes,
    (changes, add, signal) => loadPreviews(server, asked, changes, add, signal),
    [server, asked],
  )
  const { changes = [], next, locks = [] } = page.value ?? {}
  const isWhole = starts.length === 1 && next === undefined
  const select = (change: Change, isSelected: boolean): void => {
    const then = new Map(selected)
    if (isSelected) then.set(idOf(change.key), change)
    else then.delete(idOf(change.key))
    setSelected(then)
  }
  return (
    <>
      <Failure error={page.error} />
      <LockNote locks={locks} />
      <p role="status" class="facts">
        {page.isLoading
          ? `${compared} keys compared so far…`
          : page.value !== undefined &&
            `${compared} keys compared, ${changes.length} changes${isWhole ? '' : ' on this page'}.`}
      </p>
      {access.may_write && changes.length > 0 && (
        <p class="bar">
          <button type="button" onClick={() => setUndo({ chosen: undefined })}>
            Undo all…
          </button>
          <button
            type="button"
            disabled={selected.size === 0}
            onClick={() => setUndo({ chosen: [...selected.values()] })}
          >
            Undo selected ({selected.size})…
          </button>
        </p>
      )}
      {undo !== undefined && (
        <UndoPanel asked={asked} chosen={undo.chosen} onDone={onUndone} onCancel={() => setUndo(undefined)} />
      )}
      {changes.length > 0 && (
        <ul class="changes panel" aria-label="Changes">
          {changes.map((change) => (
            <ChangeLine
              key={idOf(change.key)}
              change={change}
              asked={asked}
              previews={previews.get(idOf(change.key))}
              isSelected={selected.has(idOf(change.key))}
              onSelect={access.may_write ? (isSelected) => select(change, isSelected) : undefined}
            />
          ))}
        </ul>
      )}
      {!isWhole && <PageButtons starts={starts} next={next} onGo={setStarts} />}
    </>
  )
}

const LABELS = { added: 'added', changed: 'changed', removed: 'removed', expired: 'expired or removed' } as const

function ChangeLine(props: {
  readonly change: Change
  readonly asked: DiffRequest
  readonly previews: Previews | undefined
  readonly isSelected: boolean
  /** undefined: the token may not write. */
  readonly onSelect: ((isSelected: boolean) => void) | undefined
}): JSX.Element {
  const { change, asked, previews, isSelected, onSelect } = props
  const { key, before, after } = change
  const kind = kindOf(change, asked.to)
  const isSame = kind === 'changed' && previews?.isSame === true
  return (
    <li class="change">
      {onSelect !== undefined && (
        <input
          type="checkbox"
          aria-label={`Select ${shown(key)}`}
          checked={isSelected}
          onChange={(event) => onSelect(event.currentTarget.checked)}
        />
      )}
      <div>
        <p class="facts">
          <a href={addressOf('key', key, { from: asked.from, to: asked.to })}>
            <KeyText of={key} />
          </a>
          <span class={`badge ${isSame ? '' : kind}`}>{isSame ? 'written again, the same value' : LABELS[kind]}</span>
          {after !== undefined && <Ts ts={after.commit_ts} />}
          {kind === 'expired' && before?.expire_ts !== undefined && <Ts ts={before.expire_ts} />}
        </p>
        {previews !== undefined && (
          <p class="lines bytes">
            {isSame && <span>{previews.after}</span>}
            {!isSame && before !== undefined && <del>- {previews.before}</del>}
            {!isSame && after !== undefined && <ins>+ {previews.after}</ins>}
          </p>
        )}
      </div>
    </li>
  )
}
