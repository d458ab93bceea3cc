import type { Timestamp } from '../../client/index.js'
import type { Screen } from './screen.js'
import { timeOf } from './time-of.js'

/** Prints the timestamp of a write, or that the write waits for the commit of the transaction. */
export async function printWritten(screen: Screen, commitTs: Timestamp | undefined): Promise<undefined> {
  if (screen.form !== 'table') await screen.line({ commitTs })
  else if (commitTs === undefined) await screen.write('written when the transaction commits\n')
  else await screen.record([['commit_ts', `${commitTs}  ${timeOf(commitTs)}`]])
}
