/** True only for hosts that always mean this machine: 127.0.0.0/8, ::1 and localhost. */
export function isLoopback(host: string): boolean {
  return /^(localhost\.?|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1)$/i.test(host)
}
