export const TAG_BYTES = 8

export function userKey(internalKey: Buffer): Buffer {
  return internalKey.subarray(0, Math.max(0, internalKey.length - TAG_BYTES))
}
