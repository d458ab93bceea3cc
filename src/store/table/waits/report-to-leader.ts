import type { OracleRole } from '../../../oracle/oracle-state.js'
import type { LeadingGraph } from './leading-graph.js'
import type { FoundCircle, WaitAnswer, WaitAsk, WaitReport } from './wait-report.js'

/**
 * Reports to the server that keeps the graph.
 * @returns the circles that the waits close; undefined when the graph did not know this server, and all waits have to be reported
 *   again. Rejects without an answer; the report may have been taken.
 */
export type ReportToLeader = (report: WaitReport) => Promise<readonly FoundCircle[] | undefined>

export interface ReportToLeaderOptions {
  readonly id: string
  readonly role: () => Pick<OracleRole, 'role' | 'leader'>
  readonly leading: LeadingGraph
  readonly ask: (url: string, ask: WaitAsk) => Promise<WaitAnswer | 'not_leader'>
}

/** Reports to the server that hands out timestamps, which may be this one. One call at a time. */
export function reportToLeader({ id, role, leading, ask }: ReportToLeaderOptions): ReportToLeader {
  let graph = ''
  let sequence = 0
  return async (report) => {
    const now = role()
    if (now.leader === undefined) throw new Error('no server leads')
    const asked = { ...report, server: id, graph, sequence: ++sequence }
    const answer = now.role === 'leader' ? leading.answer(asked) : await ask(now.leader, asked)
    if (answer === undefined || answer === 'not_leader') throw new Error(`${now.leader} no longer leads`)
    if (answer.graph === graph) return answer.circles
    graph = answer.graph
    return undefined
  }
}
