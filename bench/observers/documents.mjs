import { put } from '../ratios/request.mjs'
import { withConnections } from './connection.mjs'

const PUTS_AT_ONCE = 16

/** Each document by a PUT of its own, as they would arrive. @param documents texts by name */
export async function putDocuments(url, documents) {
  const left = documents.entries()
  await withConnections(url, PUTS_AT_ONCE, (connections) =>
    Promise.all(
      connections.map(async (connection) => {
        for (const [name, text] of left) await connection.json(put(`/v1/kv/doc/${encodeURI(name)}`, text))
      }),
    ),
  )
}
