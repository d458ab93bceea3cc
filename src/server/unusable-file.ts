/** The message is one line, without content of the file. */
export class UnusableFile extends Error {
  override readonly name = 'UnusableFile'
}
