/** A file of the operator cannot be used. The message is one line, with nothing of the file's content. */
export class UnusableFile extends Error {
  override readonly name = 'UnusableFile'
}
