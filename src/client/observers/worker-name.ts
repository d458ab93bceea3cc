export function newWorkerName(): string {
  const random = crypto.getRandomValues(new Uint8Array(4))
  return `worker-${Array.from(random, (byte) => byte.toString(16).padStart(2, '0')).join('')}`
}
