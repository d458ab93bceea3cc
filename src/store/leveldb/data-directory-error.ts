/** The directory can't be served from: in use, of a newer format, or not PerKV's. The message says which. */
export class DataDirectoryError extends Error {
  override readonly name = 'DataDirectoryError'
}
