import type { OracleRole } from '../../../oracle/leader-oracle.js'
import type { LeadingGraph } from './leading-graph.js'
import type { FoundCircle, WaitAnswer, WaitAsk, WaitReport } from './wait-report.js'

/**
 * Tells whoever keeps the graph.
 * @returns the circles that the waits close; undefined: this graph knew nothing of this server, and all waits have to be told again.
 *   Rejects when nobody answers; the report may have been taken.
 */
export type TellLeader = (report: WaitReport) => Promise<readonly FoundCircle[] | undefined>

export interface TellLeaderOptions {
  /** Of this process. */
  readonly id: string
  readonly role: () => Pick<OracleRole, 'role' | 'leader'>
  /** For the time when this server leads. */
  readonly leading: LeadingGraph
  /** Asks the server at `url`. */
  readonly ask: (url: string, ask: WaitAsk) => Promise<WaitAnswer | 'not_leader'>
}

/** Tells the server that hands out the timestamps, which may be this one. Must not be called while an earlier call is under way. */
export function tellLeader({ id, role, leading, ask }: TellLeaderOptions): TellLeader {
  let graph = ''
  let sequence = 0
  return async (report) => {
    const now = role()
    if (now.leader === undefined) throw new Error('no server leads')
    const asked = { ...report, server: id, graph, sequence: ++sequence }
    const answer = now.role === 'leader' ? leading.answer(asked) : await ask(now.leader, asked)
    if (answer === undefined || answer === 'not_leader') throw new Error(`${now.leader} does not lead any more`)
    if (answer.graph === graph) return answer.circles
    graph = answer.graph
    return undefined
  }
}
