import type { ComponentChildren, JSX } from 'preact'
import { useCopy } from './copy.js'
import { timeOf } from './readable-time.js'
import { reasonOf } from './server.js'
import { shown, type WireBytes } from './wire-bytes.js'

/** Small components that every view uses. */

interface TsProps {
  readonly ts: number
  /** Shows the number too, where timestamps of the same millisecond stand beside each other. */
  readonly isExact?: boolean
}

export function TsText({ ts, isExact = false }: TsProps): JSX.Element {
  const time = timeOf(ts)
  return (
    <span class="ts">
      {time !== undefined && <span class="clock">{time}</span>}{' '}
      {(isExact || time === undefined) && <span class="number">{ts}</span>}
    </span>
  )
}

/** A timestamp as a time. The number is shown on hover and copied by a click. */
export function Ts({ ts, isExact = false }: TsProps): JSX.Element {
  const [isCopied, copy] = useCopy()
  return (
    <button type="button" class="copies" title={`${ts}: click to copy`} onClick={() => copy(String(ts))}>
      <TsText ts={ts} isExact={isExact} />
      {isCopied && (
        <span role="status" class="copied">
          copied
        </span>
      )}
    </button>
  )
}

export function KeyText({ of }: { readonly of: WireBytes }): JSX.Element {
  const text = shown(of)
  return <bdi class="bytes">{text === '' ? '""' : text}</bdi>
}

export function Failure({ error }: { readonly error: unknown }): JSX.Element | null {
  if (error === undefined) return null
  return (
    <p class="failure" role="alert">
      {reasonOf(error)}
    </p>
  )
}

export function Panel(props: {
  readonly title: string
  readonly aside?: ComponentChildren
  readonly children: ComponentChildren
  readonly class?: string
}): JSX.Element {
  return (
    <section class={`panel ${props.class ?? ''}`}>
      <header>
        <h2>{props.title}</h2>
        {props.aside !== undefined && <div class="aside">{props.aside}</div>}
      </header>
      {props.children}
    </section>
  )
}

/** A region that scrolls sideways must be reachable by keyboard. */
export function Scroll({
  label,
  children,
}: {
  readonly label: string
  readonly children: ComponentChildren
}): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: keyboards scroll only what has the focus.
    <section class="scroll" aria-label={label} tabIndex={0}>
      {children}
    </section>
  )
}

export function Empty({ children }: { readonly children: ComponentChildren }): JSX.Element {
  return <p class="empty">{children}</p>
}
