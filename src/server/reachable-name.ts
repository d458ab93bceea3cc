import { X509Certificate } from 'node:crypto'
import { isIP } from 'node:net'
import { hostname } from 'node:os'

const EVERY_ADDRESS: ReadonlySet<string> = new Set(['0.0.0.0', '::'])

/** @param host an address may be in brackets. */
export function isEveryAddress(host: string): boolean {
  return EVERY_ADDRESS.has(host.replace(/^\[|\]$/g, ''))
}

/**
 * A name that clients can connect to, instead of a wildcard address. With TLS it is one of the certificate's names.
 * @param address that the server listens on. @param certificate PEM.
 */
export function reachableName(address: string, certificate: Buffer | undefined): string {
  const names = isEveryAddress(address) ? ['localhost', '127.0.0.1', '::1', hostname()] : [address]
  const [first = address] = names
  if (certificate === undefined) return first
  const x509 = new X509Certificate(certificate)
  return names.find((name) => isNameOf(x509, name)) ?? dnsNames(x509)[0] ?? first
}

export function isSelfSigned(certificate: Buffer): boolean {
  const x509 = new X509Certificate(certificate)
  return x509.checkIssued(x509)
}

function isNameOf(x509: X509Certificate, name: string): boolean {
  return (isIP(name) === 0 ? x509.checkHost(name) : x509.checkIP(name)) !== undefined
}

function dnsNames(x509: X509Certificate): string[] {
  const names = x509.subjectAltName?.split(', ') ?? []
  return names.filter((name) => name.startsWith('DNS:') && !name.includes('*')).map((name) => name.slice('DNS:'.length))
}
