import type { ComponentChildren, JSX } from 'preact'
import { timeOf } from './readable-time.js'
import { reasonOf } from './server.js'
import { shown, type WireBytes } from './wire-bytes.js'

/** Small components that every view uses. */

export function Ts({ ts }: { readonly ts: number }): JSX.Element {
  const time = timeOf(ts)
  return (
    <span class="ts">
      {time !== undefined && <span class="clock">{time}</span>} <span class="number">{ts}</span>
    </span>
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
