// Takes webhooks at http://127.0.0.1:9000/ and prints their transactions, one per line:
//   SECRET=whsec_... node receiver.mjs [COUNT]
// With a COUNT it ends after so many transactions.
import { createHmac, timingSafeEqual } from 'node:crypto'
import { createServer } from 'node:http'

const key = Buffer.from((process.env.SECRET ?? '').slice('whsec_'.length), 'base64')
const { PORT = '9000' } = process.env
let left = Number(process.argv[2] ?? Number.POSITIVE_INFINITY)

/** @param body the bytes as they came. */
function isGenuine(headers, body) {
  const { 'webhook-id': id, 'webhook-timestamp': sent, 'webhook-signature': given = '' } = headers
  const expected = `v1,${createHmac('sha256', key).update(`${id}.${sent}.`).update(body).digest('base64')}`
  const isSame = given.length === expected.length && timingSafeEqual(Buffer.from(given), Buffer.from(expected))
  return isSame && Math.abs(Date.now() / 1000 - sent) < 300
}

const server = createServer(async (request, response) => {
  const body = Buffer.concat(await request.toArray())
  if (!isGenuine(request.headers, body)) return response.writeHead(401).end('the signature is wrong\n')
  const { txns } = JSON.parse(body)
  for (const txn of txns) console.log(JSON.stringify(txn))
  left -= txns.length
  if (left <= 0) server.close()
  response.writeHead(204).end() // From now on they are not sent again.
})
server.listen(Number(PORT), '127.0.0.1')
