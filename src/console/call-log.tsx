import type { JSX } from 'preact'
import { useRef, useState } from 'preact/hooks'
import { Empty, Panel } from './parts.js'
import { Refused, reasonOf, type Server } from './server.js'

interface Call {
  readonly id: number
  readonly who: string
  readonly name: string
  readonly request: string
  readonly answer: string
  readonly isRefused: boolean
}

const CALLS_KEPT = 100

export interface CallLog {
  readonly calls: readonly Call[]
  readonly clear: () => void
  /** Sends a call of the protocol, and logs it with its answer. @throws Refused */
  readonly send: <T>(server: Server, who: string, name: string, body: unknown) => Promise<T>
}

export function useCallLog(): CallLog {
  const [calls, setCalls] = useState<readonly Call[]>([])
  const ids = useRef(0)
  const send = async <T,>(server: Server, who: string, name: string, body: unknown): Promise<T> => {
    const note = (answer: unknown, isRefused: boolean): void => {
      const call = {
        id: ids.current++,
        who,
        name,
        request: JSON.stringify(body),
        answer: JSON.stringify(answer),
        isRefused,
      }
      setCalls((before) => [call, ...before].slice(0, CALLS_KEPT))
    }
    try {
      const answer = await server.percolator<T>(name, body)
      note(answer, false)
      return answer
    } catch (error) {
      note(error instanceof Refused ? error.problem : reasonOf(error), true)
      throw error
    }
  }
  return { calls, clear: () => setCalls([]), send }
}

export function CallLogPanel({ log }: { readonly log: CallLog }): JSX.Element {
  return (
    <Panel
      title="Calls"
      aside={
        <button type="button" class="small" disabled={log.calls.length === 0} onClick={log.clear}>
          Clear
        </button>
      }
    >
      {log.calls.length === 0 && <Empty>Each step is one HTTP request. They are listed here, the newest on top.</Empty>}
      <ol class="calls" reversed>
        {log.calls.map(({ id, who, name, request, answer, isRefused }) => (
          <li key={id}>
            <details>
              <summary>
                <span class="who">{who}</span> <code>{name}</code> {isRefused && <span class="badge bad">refused</span>}
              </summary>
              <code class="bytes">POST /v1/percolator/{name}</code>
              <code class="bytes">{request}</code>
              <code class="bytes answer">{answer}</code>
            </details>
          </li>
        ))}
      </ol>
    </Panel>
  )
}
