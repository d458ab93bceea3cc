// The kinds of load: what each of many connections sends, and how it reads.
import { bytesOf, get, put } from '../../harness/requests.mjs'

const write = (i, bytes) => bytesOf(put(`/v1/kv/k${i}`, Buffer.alloc(bytes, 'v')))

const NDJSON = { accept: 'application/x-ndjson' }

/** `request(i)`: the bytes that connection i sends; `ahead`: how many requests it sends without waiting; `reads`: whether it takes the answers. */
export const KINDS = {
  small: {
    title: 'PUT of 100 bytes',
    request: (i) => write(i, 100),
    ahead: 1,
    reads: () => true,
  },
  large: {
    title: 'PUT of 64 KiB',
    request: (i) => write(i, 64 * 1024),
    ahead: 1,
    reads: () => true,
  },
  pipelined: {
    title: 'PUT of 64 KiB, 16 at a time on each connection',
    request: (i) => write(i, 64 * 1024),
    ahead: 16,
    reads: () => true,
  },
  readers: {
    title: 'scans of 8 MiB, nine readers of ten never read',
    prepare: async (url) => {
      for (let i = 0; i < 16; i++)
        await fetch(`${url}/v1/kv/big/${i}`, { method: 'PUT', body: Buffer.alloc(1024 * 1024 - 1, 'v') })
    },
    request: (i) => bytesOf({ ...get('/v1/kv?prefix=big/&limit=100'), headers: i % 20 === 0 ? NDJSON : {} }),
    ahead: 1,
    reads: (i) => i % 10 === 0,
  },
}
