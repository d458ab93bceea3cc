/** Names and addresses of this machine alone, for certain: 127.0.0.0/8, ::1, localhost. */
export function isLoopback(host: string): boolean {
  return /^(localhost\.?|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1)$/i.test(host)
}
