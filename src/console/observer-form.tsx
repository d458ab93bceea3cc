import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { reasonOf } from './server.js'
import { useSession } from './session.js'

/** Registers an observer of a prefix. What it does not ask for is set by PUT of `/v1/observers/{name}`. */
export function ObserverForm({ onDone }: { readonly onDone: () => void }): JSX.Element {
  const { server, access } = useSession()
  const own = access.prefixes?.find((prefix) => typeof prefix === 'string')
  const [said, say] = useState('')
  const register = async (form: HTMLFormElement): Promise<void> => {
    const given = new FormData(form)
    const textOf = (field: string): string => String(given.get(field) ?? '')
    const name = textOf('name')
    const options = { backfill: given.has('backfill'), maxAttempts: Number(textOf('attempts')) }
    await server.db.observers.put(name, { prefix: textOf('prefix') }, options)
    say(`${name} is registered.`)
    form.reset()
    onDone()
  }
  return (
    <details class="panel register">
      <summary>Register an observer</summary>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          register(event.currentTarget).catch((error: unknown) => say(reasonOf(error)))
        }}
      >
        <label>
          Name
          <input name="name" required autocomplete="off" />
        </label>
        <label>
          Keys that begin with
          <input name="prefix" class="bytes" autocomplete="off" {...(own !== undefined && { defaultValue: own })} />
        </label>
        <label>
          Failed runs until a key is parked (0: never)
          <input name="attempts" type="number" min={0} defaultValue="16" required />
        </label>
        <label class="check">
          <input name="backfill" type="checkbox" /> also the keys that are there already
        </label>
        <button type="submit" class="chief">
          Register
        </button>
        <p role="status">{said}</p>
      </form>
    </details>
  )
}
