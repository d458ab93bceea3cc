import http from 'node:http'
import { pack, unpack } from 'msgpackr'

const agent = new http.Agent({ keepAlive: true })
const headers = { 'content-type': 'application/msgpack', accept: 'application/msgpack' }

/** A call with a MessagePack body; it may take as long as it likes, which fetch does not allow. */
export function post(server, path, body) {
  return new Promise((resolve, reject) => {
    const request = http.request(server.url + path, { method: 'POST', agent, headers }, (response) => {
      const chunks = []
      response.on('data', (chunk) => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () => {
        const answer = unpack(Buffer.concat(chunks))
        if (response.statusCode === 200) resolve(answer)
        else reject(new Error(`${path}: ${response.statusCode} ${JSON.stringify(answer)}`))
      })
    })
    request.on('error', reject)
    request.end(pack(body))
  })
}

export const timestamp = async (server) => Number((await post(server, '/v1/percolator/tso', {})).ts)
