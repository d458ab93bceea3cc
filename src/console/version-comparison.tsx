import type { JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import type { History, WriteInfo } from './answers.js'
import { type DiffLine, lineDiff, linesOf } from './line-diff.js'
import { Panel } from './parts.js'
import { timeOf } from './readable-time.js'
import { addressOf, type Times } from './route.js'
import { useSession } from './session.js'
import { isVersion, versionAt } from './version-at.js'
import type { WireBytes } from './wire-bytes.js'

const CONTEXT_LINES = 3
const ROWS_SHOWN = 1000
const SAME_JSON = 'They differ in white space only.'

interface Props {
  readonly name: WireBytes
  readonly history: History
  /** The states of `from` and `to` are compared. */
  readonly times: Times
}

export function VersionComparison({ name, history, times }: Props): JSX.Element {
  const { at, from = 1, to = Number.MAX_SAFE_INTEGER } = times
  const [before, after] = [versionAt(history, from), versionAt(history, to)]
  const choose = (chosen: Times): void => {
    location.replace(addressOf('key', name, { at, from, to, ...chosen }))
  }
  return (
    <Panel
      title="Compare"
      aside={
        <a href={addressOf('key', name, { at })} aria-label="Close the comparison">
          Close
        </a>
      }
    >
      <div class="bar">
        <VersionSelect label="from" history={history} ts={from} onChange={(ts) => choose({ from: ts })} />
        <VersionSelect label="to" history={history} ts={to} onChange={(ts) => choose({ to: ts })} />
      </div>
      <ValueDiff key={`${from} ${to}`} before={before?.value} after={after?.value} />
    </Panel>
  )
}

function VersionSelect(props: {
  readonly label: string
  readonly history: History
  readonly ts: number
  readonly onChange: (ts: number) => void
}): JSX.Element {
  const { label, history, ts, onChange } = props
  const { safePoint } = useSession()
  const versions = history.writes.filter(({ type }) => isVersion(type))
  const chosen = versions.find(({ commit_ts }) => commit_ts <= ts)?.commit_ts
  return (
    <span class="version">
      <label for={`version-${label}`}>{label}</label>
      <select
        id={`version-${label}`}
        class="grows"
        value={String(chosen ?? ts)}
        onChange={(event) => onChange(Number(event.currentTarget.value))}
      >
        {versions.map((write) => (
          <option key={write.commit_ts} value={String(write.commit_ts)}>
            {nameOf(write)}
          </option>
        ))}
        {chosen === undefined && (
          <option value={String(ts)}>{ts < safePoint ? 'nothing is left of then' : 'absent'}</option>
        )}
      </select>
    </span>
  )
}

function nameOf({ type, commit_ts, expire_ts }: WriteInfo): string {
  const ended = expire_ts === undefined ? '' : `, expires ${timeOf(expire_ts)}`
  return `${timeOf(commit_ts) ?? commit_ts} ${type}${ended}`
}

type Row = DiffLine | { readonly kind: 'gap'; readonly text: string }

/** The lines around the differences. */
function rowsOf(lines: readonly DiffLine[]): Row[] {
  const near = new Set<number>()
  for (const [i, { kind }] of lines.entries())
    if (kind !== 'same') for (let n = i - CONTEXT_LINES; n <= i + CONTEXT_LINES; n++) near.add(n)
  const rows: Row[] = []
  let left = 0
  for (const [i, line] of lines.entries()) {
    if (!near.has(i)) left++
    if (left > 0 && (near.has(i) || i === lines.length - 1)) {
      rows.push({ kind: 'gap', text: left === 1 ? '1 equal line' : `${left} equal lines` })
      left = 0
    }
    if (near.has(i)) rows.push(line)
  }
  return rows
}

interface Values {
  /** undefined: absent. */
  readonly before: WireBytes | undefined
  readonly after: WireBytes | undefined
}

function ValueDiff({ before, after }: Values): JSX.Element {
  const [count, setCount] = useState(ROWS_SHOWN)
  const { rows, isCut } = useMemo(() => {
    const { lines, isCut } = linesOf(before ?? '', after ?? '')
    return { rows: rowsOf(lineDiff(...lines)), isCut }
  }, [before, after])
  const numberOf = (kind: Row['kind']): number => rows.filter((row) => row.kind === kind).length
  const [removed, added] = [numberOf('removed'), numberOf('added')]
  const isSame = JSON.stringify(before) === JSON.stringify(after)
  return (
    <>
      <p role="status">
        {before === undefined && 'The key was absent at first. '}
        {after === undefined && 'The key was absent at last. '}
        {isSame && before !== undefined && 'Both have the same value. '}
        {removed + added > 0 && `${removed === 1 ? '1 line' : `${removed} lines`} removed, ${added} added. `}
        {!isSame && removed + added === 0 && !isCut && before !== undefined && after !== undefined && SAME_JSON}
        {isCut && 'Only the beginning of such long values is compared.'}
      </p>
      {removed + added > 0 && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: keyboards scroll only what has the focus.
        <pre class="value-text lines" tabIndex={0}>
          {rows.slice(0, count).map((row, i) => (
            <RowLine key={i} row={row} />
          ))}
        </pre>
      )}
      {rows.length > count && (
        <button type="button" class="more" onClick={() => setCount(count * 4)}>
          {rows.length - count} more lines
        </button>
      )}
    </>
  )
}

function RowLine({ row: { kind, text } }: { readonly row: Row }): JSX.Element {
  if (kind === 'removed') return <del>{`- ${text}\n`}</del>
  if (kind === 'added') return <ins>{`+ ${text}\n`}</ins>
  return <span class={kind}>{kind === 'gap' ? `${text}\n` : `  ${text}\n`}</span>
}
