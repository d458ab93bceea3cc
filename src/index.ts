/** `perkv`: a database in this process (docs/embedded.md), and all of `perkv/client`. */

export * from './client/index.js'
export { open } from './embedded/open.js'
export type { OpenOptions } from './embedded/open-options.js'
export { DataDirectoryError } from './store/leveldb/data-directory-error.js'
