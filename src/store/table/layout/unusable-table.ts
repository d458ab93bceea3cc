/** A table can't be served from. The message is one line. */
export class UnusableTable extends Error {
  override readonly name: string = 'UnusableTable'
}
