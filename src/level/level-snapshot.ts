import { AbstractSnapshot } from 'abstract-level'
import type { Snapshot } from '../client/index.js'

/** A snapshot that is there at once, while its timestamp may still be on its way from the server. */
export class LevelSnapshot extends AbstractSnapshot {
  readonly at: Promise<Snapshot>

  /** @param options those of abstract-level, which its types leave out. They name the level that closes the snapshot. */
  constructor(options: object, at: Promise<Snapshot>) {
    super(...([options] as unknown as []))
    this.at = at
  }
}
