import { expect, test } from 'vitest'
import { isReachedByOthers, PRESENCE, REACH, reach } from '../../src/oracle/reachability.js'
import { type Answering, type Asks, answering, asksBy } from '../../src/oracle/signed-ask.js'

const SECRET = Buffer.alloc(32, 1)
const URLS = ['http://a', 'http://b', 'http://c', 'http://d'] as const

/** Servers at their URLs, some of which are not there. @param advertised by the server at `http://a`. */
function servers(away: readonly string[] = [], advertised = 'http://a'): { ask: Asks['ask']; asked: string[] } {
  const asked: string[] = []
  const ask: Asks['ask'] = asksBy(SECRET, async (name, url, body) => {
    asked.push(`${name} ${url}`)
    const answer = away.includes(url)
      ? undefined
      : await answers(url)
          .find((each) => each.name === name)
          ?.answer(body)
    if (answer === undefined) throw new Error('no answer')
    return answer
  })
  const answers = (url: string): Answering[] => {
    const own = url === 'http://a' ? advertised : url
    return [
      answering(PRESENCE, SECRET, own, async () => true),
      answering(REACH, SECRET, own, ({ target }) => reach(ask, target)),
    ]
  }
  return { ask, asked }
}

const others = URLS.slice(1)

test('a server that another one reaches is reached', async () => {
  const { ask } = servers(['http://b'])
  expect(await isReachedByOthers(ask, 'http://a', others)).toBe(true)
})

test('one at whose URL nobody answers is not, nor one with the URL of another server', async () => {
  expect(await isReachedByOthers(servers(['http://a']).ask, 'http://a', others)).toBe(false)
  expect(await isReachedByOthers(servers([], 'http://elsewhere').ask, 'http://a', others)).toBe(false)
  expect(await isReachedByOthers(servers(['http://a', 'http://c']).ask, 'http://a', others)).toBe(false)
})

test('where no other server answers, nobody can tell', async () => {
  const { ask } = servers(others)
  expect(await isReachedByOthers(ask, 'http://a', others)).toBeUndefined()
  expect(await isReachedByOthers(ask, 'http://a', [])).toBeUndefined()
})

test('three are asked, however many there are', async () => {
  const { ask, asked } = servers()
  expect(await isReachedByOthers(ask, 'http://a', [...others, ...others])).toBe(true)
  expect(asked.filter((each) => each.startsWith('reach'))).toHaveLength(3)
})
