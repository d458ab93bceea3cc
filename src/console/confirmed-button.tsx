import type { JSX } from 'preact'
import { useLayoutEffect, useRef, useState } from 'preact/hooks'

interface Props {
  /** What the button says at first. */
  readonly label: string
  /** Names what it is done to, and says what becomes of it. */
  readonly question: string
  /** What the button says that does it: a verb and a name. */
  readonly verb: string
  readonly onConfirm: () => void
}

/** A button for what cannot be taken back: it asks before it acts. */
export function ConfirmedButton({ label, question, verb, onConfirm }: Props): JSX.Element {
  const [isAsked, ask] = useState(false)
  const first = useRef<HTMLButtonElement>(null)
  const confirm = useRef<HTMLButtonElement>(null)
  const wasAsked = useRef(false)
  // Before anything is painted: who is quick must not press a key on the button that is gone.
  useLayoutEffect(() => {
    // Keyboards go on where they were.
    if (isAsked) confirm.current?.focus()
    else if (wasAsked.current) first.current?.focus()
    wasAsked.current = isAsked
  }, [isAsked])
  if (!isAsked)
    return (
      <button ref={first} type="button" class="small" onClick={() => ask(true)}>
        {label}
      </button>
    )
  return (
    <fieldset class="asking" onKeyDown={({ key }) => key === 'Escape' && ask(false)}>
      <legend>{question}</legend>
      <button
        ref={confirm}
        type="button"
        class="small danger"
        onClick={() => {
          ask(false)
          onConfirm()
        }}
      >
        {verb}
      </button>
      <button type="button" class="small" onClick={() => ask(false)}>
        Keep
      </button>
    </fieldset>
  )
}
