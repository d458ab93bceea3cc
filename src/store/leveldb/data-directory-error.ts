/** The directory can't be served from. The message says why: in use, of a newer format, or not PerKV's. */
export class DataDirectoryError extends Error {
  override readonly name = 'DataDirectoryError'
}
