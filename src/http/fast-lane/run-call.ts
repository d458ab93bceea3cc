import type { Grant } from '../../access/grant.js'
import type { Database } from '../../database/database.js'
import type { Entry } from '../../kv-connect/answers.js'
import type { LeaseRequest, LeaseState } from '../../leases/rules/leases-api.js'
import { LOCK_WAIT_MS_DEFAULT, LONG_ANSWER_BYTES } from '../../limits.js'
import type { HttpMeters } from '../../meters/http-meters.js'
import type { GetAnswer } from '../../percolator/api.js'
import type { CommitEffects } from '../../percolator/commit-effects.js'
import { noRoom } from '../../store/answer-budget.js'
import type { Timestamp } from '../../timestamp.js'
import type { OneShot, OneShotAnswer } from '../../txn/one-shot.js'
import { namedAt } from '../../txn/op.js'
import type { Work } from '../admission/admission.js'
import type { Traffic } from '../admission/traffic.js'
import { noSuchKey } from '../wire/answer-version.js'
import { refreshNamed, requireAccess, requireObserved } from '../wire/commit-effects.js'
import type { Report } from '../wire/error-handler.js'
import { KEY_ROUTE, KV_DATABASE_ROUTE, LEASE_ROUTE } from '../wire/key-url.js'
import { shownLease } from '../wire/shown-lease.js'
import { dataText, plainProblemText, problemText, valueText } from './answer-text.js'
import type { Asked } from './asked.js'
import type { Call } from './call.js'
import type { KvCalls, KvRead } from './kv-calls.js'

const WORK = {
  get: 'reading',
  write: 'writing',
  txn: 'writing',
  lease: 'ending',
  kv_read: 'reading',
  kv_write: 'writing',
} as const satisfies Record<Asked['kind'], Work>

export interface Runs {
  readonly database: Database
  readonly traffic: Traffic
  readonly report: Report
  readonly meters: HttpMeters
  readonly kvCalls: KvCalls | undefined
}

export function runner({ database, traffic, report, meters, kvCalls }: Runs): (call: Call) => void {
  let problems = 0
  const of = {
    get: meters.of('GET', KEY_ROUTE),
    put: meters.of('PUT', KEY_ROUTE),
    delete: meters.of('DELETE', KEY_ROUTE),
    txn: meters.of('POST', '/v1/txn'),
    lease: meters.of('PUT', LEASE_ROUTE),
    kv_read: meters.of('POST', `${KV_DATABASE_ROUTE}/snapshot_read`),
    kv_write: meters.of('POST', `${KV_DATABASE_ROUTE}/atomic_write`),
  }

  function fail(call: Call, error: unknown): void {
    const failed = call.asked.kind === 'kv_write' ? kvCalls?.checksText(error) : undefined
    if (failed !== undefined) return void call.end(failed)
    call.id = `fast-${++problems}`
    const problem = report(error, call.id)
    call.errorCode = problem.code
    const isPlain = call.asked.kind === 'kv_read' || call.asked.kind === 'kv_write'
    const { headers, grant } = call
    call.end(isPlain ? plainProblemText(problem, grant) : problemText(problem, headers.problemFormat, grant))
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

  function kvRead(call: Call, { kv, read }: KvRead, calls: KvCalls): void {
    const { identity } = call.grant
    const found = (ranges: readonly (readonly Entry[])[]): void => {
      const isShort = calls.bytesOf(ranges) < LONG_ANSWER_BYTES
      if (isShort || database.store.answers.hasRoomFor(identity)) call.end(calls.readText(ranges, kv))
      else fail(call, noRoom())
    }
    const waiting = () => ({ lockWaitMs: LOCK_WAIT_MS_DEFAULT, caller: identity, signal: call.signal })
    const ranges = calls.read(database, read, waiting)
    if (ranges instanceof Promise) ranges.then(found).catch((error) => fail(call, error))
    else found(ranges)
  }

  function transact(call: Call, txn: OneShot): void {
    const answered = call.asked.kind === 'kv_write' ? kvWritten : written
    /** Must not throw: other requests of the same write are answered after it. */
    const done = (error: unknown, answer: OneShotAnswer | undefined): void => {
      try {
        if (answer === undefined) throw error
        const { startTs, commitTs } = answer
        if (call.caller.isTraced) call.committed = { startTs, commitTs } // The other fields may be long.
        answered(call, answer)
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

  function written(call: Call, answer: OneShotAnswer): void {
    const { asked, headers, grant } = call
    const { commitTs, results } = answer
    const shown = asked.kind === 'write' ? { commitTs } : { ...answer, results: namedAt(results, commitTs) }
    call.end(dataText(shown, headers.answerFormat, grant))
  }

  /** A write of nothing gets a timestamp too, above those of all writes before it. */
  function kvWritten(call: Call, { commitTs }: OneShotAnswer): void {
    const answer = (ts: Timestamp): void => call.end((kvCalls as KvCalls).writtenText(ts))
    if (commitTs !== undefined) answer(commitTs)
    else
      Promise.resolve(database.store.tso(1))
        .then(answer)
        .catch((error) => fail(call, error))
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
      else if (asked.kind !== 'kv_read') transact(call, asked.txn)
      else if (kvCalls !== undefined) kvRead(call, asked, kvCalls)
    } catch (error) {
      fail(call, error)
    }
  }
}
