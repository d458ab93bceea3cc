import type { SlowRequests } from '../load/slow-requests.js'
import type { Call } from './call.js'
import { touchedByCall } from './touched-by-call.js'

export function logSlowCall(slow: SlowRequests, call: Call): void {
  const { beganMs, startedMs, endedMs, asked, answer, meter, id: reqId } = call
  const totalMs = endedMs - beganMs
  if (totalMs < slow.slowMs || answer === undefined || meter === undefined) return
  const { method, route } = meter
  // A write that ran in one turn of the event loop has waited for nothing but the disk.
  const writeMs = asked.kind === 'get' || asked.kind === 'lease' || asked.kind === 'kv_read' ? 0 : endedMs - startedMs
  const stages = call.stages ?? { latchMs: 0, lockMs: 0, readMs: 0, writeMs }
  const { status } = answer
  const touched = touchedByCall(asked)
  slow.write({ reqId, method, route, status, totalMs, queueMs: startedMs - beganMs, receiveMs: 0, stages, touched })
}
