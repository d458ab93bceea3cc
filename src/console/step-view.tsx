import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { History } from './answers.js'
import { openBank } from './bank.js'
import { CallLogPanel, useCallLog } from './call-log.js'
import { Columns, cellsOf } from './columns.js'
import { MutationEditor } from './mutation-editor.js'
import { Failure, KeyText, Panel, Ts } from './parts.js'
import { ReaderPanel } from './reader-panel.js'
import { useSession } from './session.js'
import { BANK, isCommitted, type Mutation, type Progress, problemOf, type Step, stepsOf } from './step-plan.js'
import { idOf, preview, type WireBytes } from './wire-bytes.js'

const NOTHING_DONE: Progress = { done: 0 }
/** Long enough to look around, short enough to wait for. */
const TTL_MS_DEFAULT = 20_000

interface Watched {
  readonly key: WireBytes
  readonly history: History
  /** Cells that existed before the last step. */
  readonly known: ReadonlySet<string> | undefined
}

/** Percolator's client by hand: one button per call, and the columns of the keys after each. */
export function StepView(): JSX.Element {
  const { server, access } = useSession()
  const [mutations, setMutations] = useState<readonly Mutation[]>([{ op: 'put', key: '', value: '' }])
  const [progress, setProgress] = useState<Progress>(NOTHING_DONE)
  const [ttlMs, setTtlMs] = useState(TTL_MS_DEFAULT)
  const [watched, setWatched] = useState<readonly Watched[]>([])
  const [error, setError] = useState<unknown>()
  const [isBusy, setBusy] = useState(false)
  const log = useCallLog()
  const next = useRef<HTMLButtonElement>(null)

  const look = async (keys: readonly WireBytes[]): Promise<void> => {
    const histories = await Promise.all(
      keys.map(async (key) => ({ key, history: await server.percolator<History>('mvcc_get_by_key', { key }) })),
    )
    setWatched((before) =>
      histories.map(({ key, history }) => {
        const old = before.find((one) => idOf(one.key) === idOf(key))
        return { key, history, known: old && cellsOf(old.history) }
      }),
    )
  }
  const keysOf = (some: readonly Mutation[]): readonly WireBytes[] => some.map(({ key }) => key)
  const act = (action: () => Promise<void>) => async (): Promise<void> => {
    setBusy(true)
    setError(undefined)
    try {
      await action()
    } catch (failure) {
      setError(failure)
      await look(keysOf(mutations)).catch(() => {})
    }
    setBusy(false)
  }
  /** A button loses the focus while it is disabled during a call. */
  const wasBusy = useRef(false)
  useEffect(() => {
    if (wasBusy.current && !isBusy) next.current?.focus()
    wasBusy.current = isBusy
  }, [isBusy])

  const call = <T,>(name: string, body: unknown): Promise<T> => log.send<T>(server, 'coordinator', name, body)
  const primary = mutations[0]?.key ?? ''
  const take = async ({ kind, index }: Step): Promise<Partial<Progress>> => {
    const { startTs: start_ts, commitTs: commit_ts } = progress
    const { op, key, value } = mutations[index] ?? { op: 'lock', key: primary, value: '' }
    switch (kind) {
      case 'begin':
        return { startTs: (await call<{ ts: number }>('tso', {})).ts }
      case 'prewrite':
        await call('prewrite', {
          ...{ primary, start_ts, lock_ttl: ttlMs, mutations: [{ op, key, ...(op === 'put' && { value }) }] },
        })
        return {}
      case 'commit_ts':
        return { commitTs: (await call<{ ts: number }>('tso', {})).ts }
      case 'commit':
        await call('commit', { keys: [key], start_ts, commit_ts })
        return {}
    }
  }
  const steps = stepsOf(mutations)
  const current = progress.end === undefined ? steps[progress.done] : undefined
  const advance = act(async () => {
    if (current === undefined) return
    const made = await take(current)
    setProgress({ ...progress, ...made, done: progress.done + 1 })
    await look(keysOf(mutations))
  })
  const rollBack = act(async () => {
    await call('rollback', { keys: keysOf(mutations), start_ts: progress.startTs })
    setProgress({ ...progress, end: 'rolled back' })
    await look(keysOf(mutations))
  })
  const bank = act(async () => {
    await openBank(server)
    setMutations(BANK.transfer)
    setProgress(NOTHING_DONE)
    setWatched([])
    await look(keysOf(BANK.transfer))
  })
  const restart = (): void => setProgress(NOTHING_DONE)
  const wrong = problemOf(mutations)
  const isOpen = progress.done > 0 && progress.end === undefined && current !== undefined
  const names = new Map<number, string>()
  if (progress.startTs !== undefined) names.set(progress.startTs, 'start_ts')
  if (progress.commitTs !== undefined) names.set(progress.commitTs, 'commit_ts')

  useKnownKeys(progress.done === 0 && wrong === undefined ? keysOf(mutations) : undefined, look)

  return (
    <>
      <header class="view-head">
        <h1>Step a transaction</h1>
        <p class="lead">
          You are the coordinator of a transaction in two phases. Each button is one call of the protocol, and below
          stand the columns of its keys as they are in the store. Let it die halfway, and see what a reader makes of its
          locks.
        </p>
      </header>
      {!access.may_write ? (
        <p class="note">This needs a token that may write.</p>
      ) : (
        <div class="bench">
          <div class="stack">
            <Panel
              title="Transaction"
              aside={
                <button
                  type="button"
                  onClick={bank}
                  disabled={isBusy || isOpen}
                  title="Bob has 10, Joe has 2, and Bob gives Joe 7"
                >
                  Load the paper’s bank
                </button>
              }
            >
              <MutationEditor mutations={mutations} isFixed={progress.done > 0} onChange={setMutations} />
              <div class="bar">
                <label for="ttl">Locks live for</label>
                <input
                  id="ttl"
                  type="number"
                  min={1}
                  max={600_000}
                  value={ttlMs}
                  disabled={progress.done > 0}
                  onInput={(event) => setTtlMs(Math.max(1, Math.min(600_000, Number(event.currentTarget.value) || 1)))}
                />
                ms
              </div>
            </Panel>
            <Panel title="Coordinator" class={progress.end === 'died' ? 'dead' : ''}>
              <ol class="steps">
                {steps.map((step, i) => (
                  <li
                    key={`${step.kind}${step.index}`}
                    class={stateOf(i, progress)}
                    aria-current={step === current ? 'step' : undefined}
                  >
                    <StepText step={step} mutations={mutations} progress={progress} />
                  </li>
                ))}
              </ol>
              <Failure
                error={
                  error ??
                  (progress.done === 0 && mutations.some(({ key }) => key !== '')
                    ? wrong && new Error(wrong)
                    : undefined)
                }
              />
              <p role="status" class="said">
                {endOf(progress, mutations)}
              </p>
              <div class="bar">
                {current !== undefined ? (
                  <button
                    ref={next}
                    type="button"
                    class="chief"
                    disabled={isBusy || wrong !== undefined}
                    onClick={advance}
                  >
                    {progress.done === 0 ? 'Begin' : 'Next step'}
                  </button>
                ) : (
                  <button ref={next} type="button" class="chief" onClick={restart}>
                    New transaction
                  </button>
                )}
                <button
                  type="button"
                  class="danger"
                  disabled={!isOpen || isBusy}
                  onClick={() => setProgress({ ...progress, end: 'died' })}
                >
                  Die here
                </button>
                <button
                  type="button"
                  disabled={!isOpen || isBusy || isCommitted(progress, mutations)}
                  onClick={rollBack}
                >
                  Roll back
                </button>
              </div>
            </Panel>
            <ReaderPanel
              keys={keysOf(mutations).filter((key) => key !== '')}
              log={log}
              onChange={() => void look(keysOf(mutations))}
            />
          </div>
          <div class="stack">
            {watched.map(({ key, history, known }) => {
              const mutation = mutations.find((one) => idOf(one.key) === idOf(key))
              const isOurs = history.lock !== null && history.lock.start_ts === progress.startTs
              return (
                <section class="panel" key={idOf(key)}>
                  <header>
                    <h2>
                      <KeyText of={key} />
                    </h2>
                    {idOf(key) === idOf(primary) && <span class="badge">primary</span>}
                  </header>
                  <Columns
                    name={key}
                    history={history}
                    known={known}
                    names={names}
                    valueOfLock={isOurs ? mutation?.value : undefined}
                  />
                </section>
              )
            })}
            <CallLogPanel log={log} />
          </div>
        </div>
      )}
    </>
  )
}

const LOOK_AFTER_MS = 300

/** Shows the columns of keys that are being typed, once the typing pauses. */
function useKnownKeys(
  keys: readonly WireBytes[] | undefined,
  look: (keys: readonly WireBytes[]) => Promise<void>,
): void {
  const latest = useRef(look)
  latest.current = look
  const asked = keys && JSON.stringify(keys)
  useEffect(() => {
    if (asked === undefined) return
    const timer = setTimeout(() => {
      latest.current(JSON.parse(asked) as WireBytes[]).catch(() => {})
    }, LOOK_AFTER_MS)
    return () => clearTimeout(timer)
  }, [asked])
}

function stateOf(index: number, { done, end }: Progress): string {
  if (index < done) return 'done'
  if (end !== undefined) return 'never'
  return index === done ? 'current' : ''
}

function endOf(progress: Progress, mutations: readonly Mutation[]): string {
  if (progress.end === 'rolled back') return 'Rolled back: a Rollback record keeps late copies of its prewrites out.'
  if (progress.end === 'died') {
    if (progress.done < 2) return 'The coordinator has died. It had locked nothing.'
    return isCommitted(progress, mutations)
      ? 'The coordinator has died after its primary was committed: the transaction is committed. Its other locks stand until somebody meets them.'
      : 'The coordinator has died before its commit. Its locks stand until a reader finds them expired, and rolls it back.'
  }
  if (progress.done === stepsOf(mutations).length) return 'Committed, and all locks are gone.'
  return isCommitted(progress, mutations)
    ? 'The transaction is committed: its primary is. What is left is cleaning up.'
    : ''
}

function StepText(props: {
  readonly step: Step
  readonly mutations: readonly Mutation[]
  readonly progress: Progress
}): JSX.Element {
  const { step, mutations, progress } = props
  const { key = '', op = 'put', value = '' } = mutations[step.index] ?? {}
  const role = step.index === 0 ? 'primary' : 'secondary'
  switch (step.kind) {
    case 'begin':
      return <>Take a start_ts {progress.startTs !== undefined && <Ts ts={progress.startTs} isExact />}</>
    case 'commit_ts':
      return <>Take a commit_ts {progress.commitTs !== undefined && <Ts ts={progress.commitTs} isExact />}</>
    case 'prewrite':
      return (
        <>
          Prewrite {role} <KeyText of={key} />{' '}
          {op === 'put' && (
            <>
              = <bdi class="bytes">{preview(value, 30)}</bdi>
            </>
          )}
          {op !== 'put' && <span class="quiet">({op})</span>}
        </>
      )
    case 'commit':
      return (
        <>
          Commit {role} <KeyText of={key} /> {step.index === 0 && <span class="badge">the commit point</span>}
        </>
      )
  }
}
