import type { Grant } from '../../access/grant.js'
import type { Database } from '../../database/database.js'
import type { LeaseRequest, LeaseState } from '../../leases/rules/leases-api.js'
import { LOCK_WAIT_MS_DEFAULT, LONG_ANSWER_BYTES } from '../../limits.js'
import type { HttpMeters } from '../../meters/http-meters.js'
import type { GetAnswer } from '../../percolator/api.js'
import type { CommitEffects } from '../../percolator/commit-effects.js'
import { noRoom } from '../../store/answer-budget.js'
import type { OneShot, OneShotAnswer } from '../../txn/one-shot.js'
import { namedAt } from '../../txn/op.js'
import type { Work } from '../admission/admission.js'
import type { Traffic } from '../admission/traffic.js'
import { noSuchKey } from '../wire/answer-version.js'
import { refreshNamed, requireAccess, requireObserved } from '../wire/commit-effects.js'
import type { Report } from '../wire/error-handler.js'
import { KEY_ROUTE, LEASE_ROUTE } from '../wire/key-url.js'
import { shownLease } from '../wire/shown-lease.js'
import { dataText, problemText, valueText } from './answer-text.js'
import type { Asked } from './asked.js'
import type { Call } from './call.js'

const WORK = { get: 'reading', write: 'writing', txn: 'writing', lease: 'ending' } as const satisfies Record<
  Asked['kind'],
  Work
>

export interface Runs {
  readonly database: Database
  readonly traffic: Traffic
  readonly report: Report
  readonly meters: HttpMeters
}

export function runner({ database, traffic, report, meters }: Runs): (call: Call) => void {
  let problems = 0
  const of = {
    get: meters.of('GET', KEY_ROUTE),
    put: meters.of('PUT', KEY_ROUTE),
    delete: meters.of('DELETE', KEY_ROUTE),
    txn: meters.of('POST', '/v1/txn'),
    lease: meters.of('PUT', LEASE_ROUTE),
  }

  function fail(call: Call, error: unknown): void {
    call.id = `fast-${++problems}`
    const problem = report(error, call.id)
    call.errorCode = problem.code
    call.end(problemText(problem, call.headers.problemFormat, call.grant))
  }

  function get(call: Call, key: Buffer): void {
    const found = (answer: GetAnswer): void => {
      if (!answer.found) fail(call, noSuchKey(key))
      else if (answer.value.length < LONG_ANSWER_BYTES || database.store.answers.hasRoomFor(call.grant.identity))
        call.end(valueText(answer))
      else fail(call, noRoom())
    }
    const answer = database.get({ key }, () => ({ lockWaitMs: LOCK_WAIT_MS_DEFAULT, signal: call.signal }))
    if (answer instanceof Promise) answer.then(found).catch((error) => fail(call, error))
    else found(answer)
  }

  function transact(call: Call, txn: OneShot, isOneWrite: boolean): void {
    /** Must not throw: other requests of the same write are answered after it. */
    const done = (error: unknown, answer: OneShotAnswer | undefined): void => {
      try {
        if (answer === undefined) throw error
        const { startTs, commitTs } = answer
        if (call.caller.isTraced) call.committed = { startTs, commitTs } // The other fields may be long.
        const shown = isOneWrite ? { commitTs } : { ...answer, results: namedAt(answer.results, commitTs) }
        call.end(dataText(shown, call.headers.answerFormat, call.grant))
      } catch (problem) {
        fail(call, problem)
      }
    }
    const run = (): void => {
      if (database.transactSync(txn, done, () => call.signal)) return
      database.transactAsync({ ...txn, signal: call.signal }).then(
        ({ answer }) => done(undefined, answer),
        (error) => done(error, undefined),
      )
    }
    const checking = txn.commitEffects && checkEffects(txn.commitEffects, call.grant)
    if (checking === undefined) run()
    else checking.then(run).catch((error) => done(error, undefined))
  }

  function checkEffects(commitEffects: CommitEffects, grant: Grant): undefined | Promise<void> {
    const require = (): undefined | Promise<void> => {
      requireAccess(commitEffects, grant, database)
      return requireObserved(commitEffects, database)
    }
    const reading = refreshNamed(commitEffects, grant, database)
    return reading === undefined ? require() : reading.then(require)
  }

  function lease(call: Call, name: string, request: LeaseRequest): void {
    const done = (state: LeaseState): void =>
      call.end(dataText(shownLease(state), call.headers.answerFormat, call.grant))
    const state = database.leases.acquire(name, request, call.grant.identity)
    if (state instanceof Promise) state.then(done).catch((error) => fail(call, error))
    else done(state)
  }

  return (call) => {
    const { asked } = call
    call.meter = asked.kind === 'write' ? of[asked.txn.ops[0]?.op === 'delete' ? 'delete' : 'put'] : of[asked.kind]
    try {
      call.flight = traffic.admitWhole(WORK[asked.kind], call.bodyBytes, call.grant.identity)
    } catch (error) {
      call.caller.shed()
      return fail(call, error)
    }
    try {
      if (asked.kind === 'get') get(call, asked.key)
      else if (asked.kind === 'lease') lease(call, asked.name, asked.request)
      else transact(call, asked.txn, asked.kind === 'write')
    } catch (error) {
      fail(call, error)
    }
  }
}
