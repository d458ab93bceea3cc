// What one stream that follows everything adds to a PUT.
import { alternate, block, ratioRows } from '../observers/blocks.mjs'
import { fresh } from '../ratios/payload.mjs'
import { put } from '../ratios/request.mjs'
import { withPerkv } from '../scale/servers.mjs'
import { Streams } from './streams.mjs'

export async function beside({ rounds, requests }) {
  const rows = await withPerkv(async (server) => {
    const { url } = server
    const puts = () =>
      block(server, requests, function* () {
        const { key, value } = fresh()
        yield put(`/v1/kv/${key}`, value)
      })
    const following = async (path) => {
      const streams = await Streams.open(url, [path])
      const measured = await puts()
      await streams.close()
      return measured
    }
    const contenders = {
      none: puts,
      elsewhere: () => following('/v1/changes?prefix=elsewhere'),
      following: () => following('/v1/changes'),
    }
    const blocks = await alternate(contenders, rounds)
    return [
      ...ratioRows(blocks, 'PUT, 1 stream elsewhere', 'elsewhere', 'none', 'main', { floor: 0.5 }),
      ...ratioRows(blocks, 'PUT, 1 stream of everything', 'following', 'none', 'main', { floor: 0.3 }),
    ]
  })
  return { settings: { rounds, requests_per_block: requests }, rows }
}
