/** `perkv/keyv`: docs/keyv.md. */

export { KeyvPerkv, type KeyvPerkvEntry, type KeyvPerkvOptions } from './keyv-perkv.js'
