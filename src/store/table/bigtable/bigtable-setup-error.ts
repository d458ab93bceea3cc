/** The table can't be served from: its address, the credentials, the table itself or its app profile. One line says which. */
export class BigtableSetupError extends Error {
  override readonly name: string = 'BigtableSetupError'
}
