import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'

const TOLD_MS = 1500

/** Copies a text. @returns whether it was copied just now, and the function. */
export function useCopy(): readonly [boolean, (text: string) => void] {
  const [isCopied, setCopied] = useState(false)
  useEffect(() => {
    if (!isCopied) return
    const timer = setTimeout(() => setCopied(false), TOLD_MS)
    return () => clearTimeout(timer)
  }, [isCopied])
  const copy = (text: string): void => {
    toClipboard(text).then(
      () => setCopied(true),
      () => {}, // The browser has said no. The text can be selected.
    )
  }
  return [isCopied, copy]
}

async function toClipboard(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text)
  // A page that came by plain HTTP from another machine has no clipboard.
  const area = document.createElement('textarea')
  area.value = text
  document.body.append(area)
  const { activeElement } = document
  area.select()
  const isDone = document.execCommand('copy')
  area.remove()
  if (activeElement instanceof HTMLElement) activeElement.focus()
  if (!isDone) throw new Error('not copied')
}

export function CopyButton(props: { readonly text: () => string; readonly children: ComponentChildren }): JSX.Element {
  const [isCopied, copy] = useCopy()
  return (
    <button type="button" class="small" onClick={() => copy(props.text())}>
      {isCopied ? <span role="status">Copied</span> : props.children}
    </button>
  )
}
