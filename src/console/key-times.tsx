import type { JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import type { History } from './answers.js'
import { RestorePanel } from './restore-panel.js'
import { addressOf, travel, useRoute } from './route.js'
import { useSession } from './session.js'
import { isVersion, versionAt, versionNow } from './version-at.js'
import { VersionComparison } from './version-comparison.js'
import type { WireBytes } from './wire-bytes.js'

/** What can be done with the versions of a key: compare two, and restore the one that is looked at. */
export function KeyTimes(props: {
  readonly name: WireBytes
  readonly history: History
  /** The time of the server. */
  readonly nowTs: number
  readonly onRestored: () => void
}): JSX.Element {
  const { name, history, nowTs, onRestored } = props
  const { access, at } = useSession()
  const { from, to } = useRoute()
  const [isRestoring, setRestoring] = useState(false)
  const present = versionNow(history, nowTs)
  const past = at === undefined ? present : versionAt(history, at)
  const restorations = useMemo(() => [{ key: name, target: past, present }], [history, at])
  const [newest, before] = history.writes.filter(({ type }) => isVersion(type))
  const isOlder = at !== undefined && newest !== undefined && at < newest.commit_ts
  const other = isOlder ? at : before?.commit_ts
  const mayRestore = access.may_write && at !== undefined && past?.commitTs !== present?.commitTs
  return (
    <>
      <p class="bar">
        {newest !== undefined && other !== undefined && from === undefined && (
          <a href={addressOf('key', name, { at, from: other, to: newest.commit_ts })}>
            {isOlder ? 'Compare with the newest version' : 'Compare with the version before'}
          </a>
        )}
        {mayRestore && (
          <button type="button" aria-expanded={isRestoring} onClick={() => setRestoring(!isRestoring)}>
            {past === undefined ? 'Delete again' : 'Restore this version'}
          </button>
        )}
      </p>
      {mayRestore && isRestoring && (
        <RestorePanel
          title={past === undefined ? 'Make it absent, as it was then' : 'Write this version again'}
          restorations={restorations}
          onDone={() => {
            setRestoring(false)
            travel(undefined)
            onRestored()
          }}
          onCancel={() => setRestoring(false)}
        />
      )}
      {from !== undefined && <VersionComparison name={name} history={history} times={{ at, from, to }} />}
    </>
  )
}
