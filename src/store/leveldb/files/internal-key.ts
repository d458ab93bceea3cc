/** Length of the tag after each key in LevelDB's tables and MANIFEST: sequence number and type (value or deletion). */
export const TAG_BYTES = 8

export function userKey(internalKey: Buffer): Buffer {
  return internalKey.subarray(0, Math.max(0, internalKey.length - TAG_BYTES))
}
