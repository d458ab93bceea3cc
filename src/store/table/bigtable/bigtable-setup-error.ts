import { UnusableTable } from '../layout/unusable-table.js'

/** The table can't be served from. The message says why in one line: address, credentials, table or app profile. */
export class BigtableSetupError extends UnusableTable {
  override readonly name: string = 'BigtableSetupError'
}
