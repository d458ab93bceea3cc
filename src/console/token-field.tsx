import type { JSX } from 'preact'
import { useState } from 'preact/hooks'

const STORED = 'perkv-token'

export function storedToken(): string | undefined {
  return sessionStorage.getItem(STORED) ?? undefined
}

function store(token: string | undefined): void {
  if (token === undefined) sessionStorage.removeItem(STORED)
  else sessionStorage.setItem(STORED, token)
}

interface Props {
  readonly token: string | undefined
  readonly onChange: (token: string | undefined) => void
}

export function TokenField({ token, onChange }: Props): JSX.Element {
  const [text, setText] = useState('')
  const change = (next: string | undefined): void => {
    store(next)
    setText('')
    onChange(next)
  }
  if (token !== undefined)
    return (
      <button type="button" class="small" onClick={() => change(undefined)}>
        Forget token
      </button>
    )
  return (
    <form
      class="token"
      onSubmit={(event) => {
        event.preventDefault()
        if (text !== '') change(text)
      }}
    >
      <label class="unseen" for="token">
        Token
      </label>
      <input
        id="token"
        type="password"
        placeholder="Token"
        autocomplete="off"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button type="submit" class="small">
        Use
      </button>
    </form>
  )
}
