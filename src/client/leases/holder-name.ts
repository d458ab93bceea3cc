export function newHolderName(): string {
  const random = crypto.getRandomValues(new Uint8Array(16))
  return `holder-${Array.from(random, (byte) => byte.toString(16).padStart(2, '0')).join('')}`
}
