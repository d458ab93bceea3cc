import type { JSX } from 'preact'
import { useLayoutEffect } from 'preact/hooks'
import { KeyText } from './parts.js'
import { addressOf } from './route.js'
import { idOf, type WireBytes } from './wire-bytes.js'

/** Where a token with prefixes begins: all keys would be refused. */
export function OwnPrefixes({ prefixes }: { readonly prefixes: readonly WireBytes[] }): JSX.Element {
  const [first, ...others] = prefixes
  const only = others.length === 0 ? first : undefined
  useLayoutEffect(() => {
    // In place of this address, so that the back button leads out.
    if (only !== undefined) location.replace(addressOf('browse', only))
  }, [only])
  return (
    <>
      <header class="view-head">
        <h1>Browse</h1>
        <p class="lead">This token reaches the keys below these prefixes.</p>
      </header>
      <ul class="entries" aria-label="Prefixes">
        {prefixes.map((prefix) => (
          <li key={idOf(prefix)} class="entry">
            <a href={addressOf('browse', prefix)}>
              <KeyText of={prefix} />
            </a>
          </li>
        ))}
      </ul>
    </>
  )
}
