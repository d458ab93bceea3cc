import { expect, test } from 'vitest'
import { connect } from '../../../src/client/index.js'

test('a write or a count that an answer of something else confirms is not taken for done', async () => {
  const fetch = async () => new Response('{}', { headers: { 'content-type': 'application/json' } })
  const db = connect('http://kv.test', { fetch })
  const unexpected = { name: 'ServerError', code: 'unexpected_answer', mayHaveTakenEffect: true }
  await expect(db.put('k', 'v')).rejects.toMatchObject(unexpected)
  await expect(db.delete('k')).rejects.toMatchObject(unexpected)
  await expect(db.count({ prefix: 'k' })).rejects.toMatchObject(unexpected)
  await db.close()
})
