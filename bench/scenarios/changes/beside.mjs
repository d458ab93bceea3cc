// What one stream that follows everything adds to a PUT.
import { load } from '../../harness/load.mjs'
import { withPerkv } from '../../harness/perkv.mjs'
import { freshPut } from '../../harness/requests.mjs'
import { addedRows, inTurn, metered } from '../../harness/rounds.mjs'
import { Streams } from './streams.mjs'

export const beside = {
  full: { rounds: 15, requests: 3000 },
  quick: { rounds: 3, requests: 1000 },
  run: ({ rounds, requests }) =>
    withPerkv([], async (server) => {
      const { url } = server
      const puts = () => metered(server, () => load({ url, count: requests, request: freshPut }))
      const following = (path) => async () => {
        const streams = await Streams.open(url, [path])
        const measured = await puts()
        await streams.close()
        return measured
      }
      const contenders = {
        none: puts,
        elsewhere: following('/v1/changes?prefix=elsewhere'),
        everything: following('/v1/changes'),
      }
      const results = await inTurn(contenders, { rounds })
      return [
        ...addedRows(results, 'PUT, a stream elsewhere', ['elsewhere', 'none'], 'by main thread', { floor: 0.5 }),
        ...addedRows(results, 'PUT, a stream of everything', ['everything', 'none'], 'by main thread', { floor: 0.3 }),
      ]
    }),
}
