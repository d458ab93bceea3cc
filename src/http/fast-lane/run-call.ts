import type { Database } from '../../database/database.js'
import { LOCK_WAIT_MS_DEFAULT } from '../../limits.js'
import type { HttpMeters } from '../../meters/http-meters.js'
import type { GetAnswer } from '../../percolator/api.js'
import type { OneShot, OneShotAnswer } from '../../txn/one-shots.js'
import type { Traffic } from '../admission/traffic.js'
import { noSuchKey } from '../wire/answer-version.js'
import type { Report } from '../wire/error-handler.js'
import { requireObserved, requireReached } from '../wire/riders.js'
import { dataText, problemText, valueText } from './answer-text.js'
import type { Call } from './call.js'

const KEY_ROUTE = '/v1/kv/:key'

export interface Runs {
  readonly database: Database
  readonly traffic: Traffic
  readonly report: Report
  readonly meters: HttpMeters
}

/** @returns a function that admits a call and runs it. The call may end before the function returns. */
export function runner({ database, traffic, report, meters }: Runs): (call: Call) => void {
  let problems = 0
  const of = {
    get: meters.of('GET', KEY_ROUTE),
    put: meters.of('PUT', KEY_ROUTE),
    delete: meters.of('DELETE', KEY_ROUTE),
    txn: meters.of('POST', '/v1/txn'),
  }

  function fail(call: Call, error: unknown): void {
    call.id = `fast-${++problems}`
    const problem = report(error, call.id)
    call.errorCode = problem.code
    call.end(problemText(problem, call.headers.problemFormat, call.grant))
  }

  function get(call: Call, key: Buffer): void {
    const found = (answer: GetAnswer): void => {
      if (answer.found) call.end(valueText(answer))
      else fail(call, noSuchKey(key))
    }
    const known = database.known({ key })
    if (known !== undefined) found(known)
    else
      database
        .get({ key, lockWaitMs: LOCK_WAIT_MS_DEFAULT, signal: call.signal })
        .then(found)
        .catch((error) => fail(call, error))
  }

  function transact(call: Call, txn: OneShot, isOneWrite: boolean): void {
    /** Must not throw: other requests of the same write are answered after it. */
    const done = (error: unknown, answer: OneShotAnswer | undefined): void => {
      try {
        if (answer === undefined) throw error
        const { startTs, commitTs } = answer
        if (call.caller.isTraced) call.committed = { startTs, commitTs } // The rest may be long.
        const shown = isOneWrite ? { commitTs } : answer
        call.end(dataText(shown, call.headers.answerFormat, call.grant))
      } catch (problem) {
        fail(call, problem)
      }
    }
    if (txn.riders !== undefined) {
      requireReached(txn.riders, call.grant, database)
      requireObserved(txn.riders, database)
    }
    if (database.transactNow(txn, done)) return
    database.transactInTurns({ ...txn, signal: call.signal }).then(
      ({ answer }) => done(undefined, answer),
      (error) => done(error, undefined),
    )
  }

  return (call) => {
    const { asked } = call
    call.meter = asked.kind === 'write' ? of[asked.txn.ops[0]?.op === 'delete' ? 'delete' : 'put'] : of[asked.kind]
    try {
      call.flight = traffic.admitWhole(asked.kind === 'get' ? 'reading' : 'writing', call.bodyBytes)
    } catch (error) {
      call.caller.shed()
      return fail(call, error)
    }
    try {
      if (asked.kind === 'get') get(call, asked.key)
      else transact(call, asked.txn, asked.kind === 'write')
    } catch (error) {
      fail(call, error)
    }
  }
}
