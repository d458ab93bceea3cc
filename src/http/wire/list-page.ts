import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Page, PageRequest } from '../../bytes/sorted-map.js'
import { invalid } from '../../errors/kv-error.js'
import { TimeSlicer } from '../../event-loop/time-slicer.js'
import { LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX } from '../../limits.js'
import { answer } from './answer.js'
import { decodeListCursor, encodeListCursor, type ListCursor, type ListName } from './cursor.js'
import { queryInteger, queryText, type RawQuery } from './query.js'
import type { Plain } from './wire.js'

export const LISTING = ['prefix', 'limit', 'cursor'] as const

export async function answerPage<T>(
  request: FastifyRequest,
  reply: FastifyReply,
  list: Exclude<ListName, 'parked'>,
  secret: Uint8Array,
  read: (page: PageRequest) => Promise<Page<T>>,
  shown: (item: T) => Plain,
): Promise<FastifyReply> {
  const query = request.query as RawQuery
  // Other lists are short, and a client that does not page gets all entries.
  const limitDefault = list === 'leases' ? LIST_LIMIT_DEFAULT : LIST_LIMIT_MAX
  const limits = { limitDefault, limitMax: LIST_LIMIT_MAX }
  const asked = askedPage<string>(query, list, queryText(query, 'prefix'), limits, secret)
  const { items, next } = await read({ prefix: asked.of, after: asked.after, limit: asked.limit })
  const shownItems: Plain[] = []
  const slicer = new TimeSlicer()
  for (const item of items) {
    shownItems.push(shown(item))
    await slicer.next()
  }
  const cursor = next === undefined ? undefined : encodeListCursor(list, { ...asked, after: next }, secret)
  return answer(request, reply, { [list]: shownItems, cursor })
}

export function askedPage<Place extends string | Uint8Array>(
  query: RawQuery,
  list: ListName,
  of: string | undefined,
  { limitDefault, limitMax }: { readonly limitDefault: number; readonly limitMax: number },
  secret: Uint8Array,
): Omit<ListCursor<Place>, 'after'> & { readonly after: Place | undefined } {
  const text = queryText(query, 'cursor')
  const cursor = text === undefined ? undefined : decodeListCursor<Place>(list, text, secret)
  if (cursor !== undefined && of !== undefined && cursor.of !== of)
    throw invalid('cursor', 'the cursor belongs to another list')
  const limit = queryInteger(query, 'limit', 1, limitMax) ?? cursor?.limit ?? limitDefault
  return { of: of ?? cursor?.of ?? '', limit, after: cursor?.after }
}
