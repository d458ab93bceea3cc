import type { Observed } from '../../observed.js'
import type { WakeUps } from '../layout/wake-ups.js'
import type { Hints } from './hints.js'
import type { Registrations } from './registrations.js'

export interface CellSources {
  readonly observed: Observed
  readonly registrations: Registrations
  readonly hints: Hints
  readonly wakeUps: WakeUps
}
