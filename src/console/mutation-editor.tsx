import type { JSX } from 'preact'
import { MUTATIONS_MAX, type Mutation } from './step-plan.js'
import { shown } from './wire-bytes.js'

interface Props {
  readonly mutations: readonly Mutation[]
  /** Whether the transaction has begun. */
  readonly isFixed: boolean
  readonly onChange: (mutations: readonly Mutation[]) => void
}

export function MutationEditor({ mutations, isFixed, onChange }: Props): JSX.Element {
  const change = (index: number, part: Partial<Mutation>): void =>
    onChange(mutations.map((mutation, i) => (i === index ? { ...mutation, ...part } : mutation)))
  return (
    <fieldset class="mutations" disabled={isFixed}>
      <legend class="unseen">Writes</legend>
      {mutations.map(({ op, key, value }, i) => (
        <div class="mutation" key={i}>
          <select
            aria-label={`Operation ${i + 1}`}
            value={op}
            onChange={(event) => change(i, { op: event.currentTarget.value as Mutation['op'] })}
          >
            <option value="put">put</option>
            <option value="delete">delete</option>
            <option value="lock">lock</option>
          </select>
          <input
            class="bytes"
            aria-label={`Key ${i + 1}`}
            placeholder={i === 0 ? 'primary key' : 'secondary key'}
            spellcheck={false}
            autocapitalize="off"
            value={shown(key)}
            onInput={(event) => change(i, { key: event.currentTarget.value })}
          />
          <input
            class="bytes"
            aria-label={`Value ${i + 1}`}
            placeholder={op === 'put' ? 'value' : 'no value'}
            disabled={op !== 'put'}
            spellcheck={false}
            value={op === 'put' ? value : ''}
            onInput={(event) => change(i, { value: event.currentTarget.value })}
          />
          <button
            type="button"
            class="small"
            aria-label={`Remove write ${i + 1}`}
            disabled={mutations.length === 1}
            onClick={() => onChange(mutations.filter((_, other) => other !== i))}
          >
            ×
          </button>
        </div>
      ))}
      <button
        type="button"
        class="small"
        disabled={mutations.length >= MUTATIONS_MAX}
        onClick={() => onChange([...mutations, { op: 'put', key: '', value: '' }])}
      >
        Add a key
      </button>
    </fieldset>
  )
}
