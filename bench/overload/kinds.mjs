// The kinds of load: what each of many connections sends, and how it reads.

const put = (path, body) =>
  Buffer.concat([
    Buffer.from(`PUT /v1/kv/${path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${body.length}\r\n\r\n`),
    body,
  ])
const get = (path, headers = '') => Buffer.from(`GET ${path} HTTP/1.1\r\nhost: localhost\r\n${headers}\r\n`)

/** `request(i)`: the bytes that connection i sends; `ahead`: how many requests it sends without waiting; `reads`: whether it takes the answers. */
export const KINDS = {
  small: {
    title: 'PUT of 100 bytes',
    request: (i) => put(`k${i}`, Buffer.alloc(100, 'v')),
    ahead: 1,
    reads: () => true,
  },
  large: {
    title: 'PUT of 64 KiB',
    request: (i) => put(`k${i}`, Buffer.alloc(64 * 1024, 'v')),
    ahead: 1,
    reads: () => true,
  },
  pipelined: {
    title: 'PUT of 64 KiB, 16 at a time on each connection',
    request: (i) => put(`k${i}`, Buffer.alloc(64 * 1024, 'v')),
    ahead: 16,
    reads: () => true,
  },
  readers: {
    title: 'scans of 8 MiB, nine readers of ten never read',
    prepare: async (url) => {
      for (let i = 0; i < 16; i++)
        await fetch(`${url}/v1/kv/big/${i}`, { method: 'PUT', body: Buffer.alloc(1024 * 1024 - 1, 'v') })
    },
    request: (i) => get('/v1/kv?prefix=big/&limit=100', i % 20 === 0 ? 'accept: application/x-ndjson\r\n' : ''),
    ahead: 1,
    reads: (i) => i % 10 === 0,
  },
}
