import type { JSX } from 'preact'
import type { Pair } from './answers.js'
import { EmptyStore } from './empty-store.js'
import { type FolderSum, readableSum } from './folder-sum.js'
import type { Entry, ListPage } from './list-page.js'
import { Empty, KeyText, Ts } from './parts.js'
import { addressOf } from './route.js'
import { ExpiresIn } from './version-end.js'
import { idOf, shown, type WireBytes } from './wire-bytes.js'

/** Stands for the version of a key that has only a lock yet. */
const UNBORN: Pair = { key: '', commit_ts: 0 }

export function KeyList(props: {
  readonly page: ListPage
  readonly prefix: WireBytes
  readonly values: ReadonlyMap<string, WireBytes>
  readonly sums: ReadonlyMap<string, FolderSum>
  readonly selected: readonly Pair[]
  readonly onSelect: (selected: readonly Pair[]) => void
}): JSX.Element {
  const { page, prefix, values, sums, selected, onSelect } = props
  const pairs = page.entries.flatMap(({ pair }) => pair ?? [])
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
          <th scope="col">
            {pairs.length > 0 && (
              <input
                type="checkbox"
                class="pick"
                aria-label="Select all keys of this page"
                checked={selected.length === pairs.length}
                onChange={({ currentTarget: { checked } }) => onSelect(checked ? pairs : [])}
              />
            )}{' '}
            key
          </th>
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
            sum={sums.get(idOf(entry.key))}
            isLocked={locked.has(idOf(entry.key))}
            isSelected={entry.pair !== undefined && selected.includes(entry.pair)}
            onSelect={(isSelected) =>
              onSelect(pairs.filter((pair) => (pair === entry.pair ? isSelected : selected.includes(pair))))
            }
          />
        ))}
        {unborn.map(({ key }) => (
          <Line key={idOf(key)} entry={{ key, pair: UNBORN }} prefix={prefix} isLocked />
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
  readonly value?: WireBytes | undefined
  readonly sum?: FolderSum | undefined
  readonly isLocked: boolean
  readonly isSelected?: boolean
  /** undefined: the line cannot be selected. */
  readonly onSelect?: (isSelected: boolean) => void
}): JSX.Element {
  const { entry, prefix, value, sum, isLocked, isSelected = false, onSelect } = props
  const { key, pair } = entry
  return (
    <tr class={pair === undefined ? 'folder' : 'key'}>
      <th scope="row">
        {pair !== undefined && onSelect !== undefined && (
          <input
            type="checkbox"
            class="pick"
            aria-label={`Select ${shown(key)}`}
            checked={isSelected}
            onChange={({ currentTarget: { checked } }) => onSelect(checked)}
          />
        )}
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
      <td class="preview">
        {value !== undefined && <bdi class="bytes">{shown(value)}</bdi>}
        {sum !== undefined && <span class="quiet">{readableSum(sum)}</span>}
      </td>
      <td class="when">
        {pair !== undefined && pair !== UNBORN && <Ts ts={pair.commit_ts} />}
        {sum !== undefined && sum.newest > 0 && (
          <span class="quiet">
            {sum.isMore ? 'at least ' : 'newest '}
            <Ts ts={sum.newest} />
          </span>
        )}
      </td>
    </tr>
  )
}

/** A key without the prefix that is shown above the list. */
function Rest({ name, prefix }: { readonly name: WireBytes; readonly prefix: WireBytes }): JSX.Element {
  const isText = typeof name === 'string' && typeof prefix === 'string'
  const rest = isText && name.length > prefix.length && name.startsWith(prefix) ? name.slice(prefix.length) : name
  return <KeyText of={rest} />
}
