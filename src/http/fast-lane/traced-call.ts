import { Stages } from '../../event-loop/stages.js'
import type { RequestTraces } from '../connections/traced-requests.js'
import type { Call } from './call.js'

export function traceCall(traces: RequestTraces, call: Call): void {
  const { beganMs: arrivedMs, startedMs, endedMs, headers, answer, meter } = call
  if (answer === undefined || meter === undefined) return
  const { method, route } = meter
  const { traceparent } = headers
  const times = { arrivedMs, startedMs, receivedMs: 0, endedMs, stages: call.stages ?? stagesOfSyncCommit(call) }
  traces.ended({ method, route, status: answer.status, errorCode: call.errorCode, ...times, traceparent })
}

/** The stages of a call that ran in one turn of the event loop: a write has waited for nothing but the disk. */
function stagesOfSyncCommit({ startedMs: beganMs, endedMs, committed }: Call): Stages | undefined {
  if (committed?.commitTs === undefined) return undefined
  const stages = new Stages(true)
  stages.intervals?.push({ stage: 'writeMs', beganMs, endedMs })
  const { startTs, commitTs } = committed
  stages.txn = { startTs, commitTs, kind: '1pc' }
  return stages
}
