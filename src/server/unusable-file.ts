/** A file of the operator's that cannot be used. The message is one line, and nothing of what the file holds. */
export class UnusableFile extends Error {
  override readonly name = 'UnusableFile'
}
