import http from 'node:http'

/**
 * Calls of one server over connections that stay open; node:http costs a third of what fetch does.
 * @returns a function whose promise is fulfilled with [status, body].
 */
export function callerOf({ url }, connectionsMax) {
  const { hostname, port } = new URL(url)
  const agent = new http.Agent({ keepAlive: true, maxSockets: connectionsMax })
  return (method, path, body) =>
    new Promise((resolve, reject) => {
      const headers = body === undefined ? {} : { 'content-type': 'application/json' }
      const request = http.request({ hostname, port, method, path, agent, headers }, (response) => {
        const chunks = []
        response.on('data', (chunk) => chunks.push(chunk))
        response.on('end', () => resolve([response.statusCode, Buffer.concat(chunks).toString()]))
      })
      request.on('error', reject)
      request.end(body)
    })
}
