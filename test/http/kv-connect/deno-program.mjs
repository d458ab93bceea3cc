/* global Deno */

/** Asks Deno's own client what the tests of `@deno/kv` cannot, and prints a line for each answer. */

const kv = await Deno.openKv(Deno.args[0])

function print(name, value) {
  console.log(`${name}: ${Deno.inspect(value, { compact: true, breakLength: Number.POSITIVE_INFINITY })}`)
}
const failure = async (promise) => String(await promise.catch((error) => error)).replace(/.*\): /, '')
const valueAt = async (key) => (await kv.get(key)).value

async function keysOf(selector, options) {
  const keys = []
  for await (const { key } of kv.list(selector, options)) keys.push(key.join(''))
  return keys.join(' ')
}

print('unset', await kv.get(['a']))
const { versionstamp } = await kv.set(['a'], { list: [1, 2n, new Date(0)], set: new Set(['x']) })
print('set', (await kv.get(['a'])).versionstamp === versionstamp)
print('value', await valueAt(['a']))
print(
  'check fails',
  await kv
    .atomic()
    .check({ key: ['a'], versionstamp: null })
    .set(['a'], 1)
    .commit(),
)
print(
  'check holds',
  (
    await kv
      .atomic()
      .check({ key: ['a'], versionstamp })
      .set(['a'], 1)
      .commit()
  ).ok,
)
print('consistency', (await kv.get(['a'], { consistency: 'eventual' })).value)

const write = kv.atomic()
for (const key of ['l', 'la', 'lb', 'lc', 'ld', 'm']) write.set([...key], key)
await write.commit()
print('prefix', await keysOf({ prefix: ['l'] }))
print('batches', await keysOf({ prefix: ['l'] }, { batchSize: 1 }))
print('reverse', await keysOf({ prefix: ['l'] }, { reverse: true, batchSize: 2 }))
print('range', await keysOf({ start: ['l', 'b'], end: ['m'] }))
print('limit', await keysOf({ prefix: ['l'], start: ['l', 'b'] }, { limit: 2 }))
const pages = kv.list({ prefix: ['l'] }, { limit: 2 })
for await (const _ of pages);
print('cursor', await keysOf({ prefix: ['l'] }, { cursor: pages.cursor }))
print(
  'many',
  (await kv.getMany([['m'], ['none'], ['l', 'a']])).map(({ value }) => value),
)

await kv.atomic().sum(['n'], 5n).sum(['n'], 2n).min(['n'], 6n).max(['n'], 1n).commit()
print('KvU64', await valueAt(['n']))
const sum = (value) =>
  kv
    .atomic()
    .mutate({ type: 'sum', key: ['v'], value })
    .commit()
await sum(7n)
await sum(-10n)
print('bigint', await valueAt(['v']))
print('wrong type', await failure(kv.atomic().sum(['a'], 1n).commit()))

const stamped = await kv
  .atomic()
  .set(['log', kv.commitVersionstamp()], 'first')
  .set(['log', kv.commitVersionstamp()], 'second')
  .commit()
await kv.set(['log', kv.commitVersionstamp()], 'third')
const logged = []
for await (const { key, value, versionstamp: at } of kv.list({ prefix: ['log'] })) logged.push([key[1] === at, value])
print('versionstamped', logged)
print('by its name', await valueAt(['log', stamped.versionstamp]))

await kv.set(['soon'], 1, { expireIn: 1 })
await new Promise((resolve) => setTimeout(resolve, 20))
print('expired', await valueAt(['soon']))

const watching = kv.watch([['w'], ['x']]).getReader()
const next = async () => (await watching.read()).value.map(({ value }) => value)
print('watch', await next())
await kv.atomic().set(['w'], 1).set(['x'], 2).commit()
print('both', await next())
await kv.delete(['w'])
print('one', await next())
await watching.cancel()

print('queue', await failure(kv.enqueue('job')))
kv.close()
