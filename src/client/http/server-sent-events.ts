export interface ServerSentEvent {
  readonly event: string
  readonly data: string
  /** Empty when the event has none. */
  readonly id: string
}

/**
 * Reads `text/event-stream`. An event that is cut off at the end is dropped.
 * @returns the events of each chunk; none when it has only comments.
 * @see https://html.spec.whatwg.org/multipage/server-sent-events.html
 */
export async function* serverSentEvents(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<readonly ServerSentEvent[], void> {
  const decoder = new TextDecoder()
  /** Pieces of an incomplete line. They are joined once, because an event may be long. */
  let pieces: string[] = []
  let [event, data, id] = ['', '', '']
  for await (const chunk of chunks) {
    const text = decoder.decode(chunk, { stream: true })
    const events: ServerSentEvent[] = []
    let from = 0
    for (let to = text.indexOf('\n'); to !== -1; from = to + 1, to = text.indexOf('\n', from)) {
      let line = text.slice(from, to)
      if (pieces.length > 0) {
        line = pieces.join('') + line
        pieces = []
      }
      if (line.endsWith('\r')) line = line.slice(0, -1)
      if (line === '') {
        if (data !== '') events.push({ event, data, id })
        event = data = id = ''
      } else if (line.startsWith('data:')) data += (data === '' ? '' : '\n') + fieldValue(line, 5)
      else if (line.startsWith('event:')) event = fieldValue(line, 6)
      else if (line.startsWith('id:')) id = fieldValue(line, 3)
    }
    if (from < text.length) pieces.push(text.slice(from))
    yield events
  }
}

function fieldValue(line: string, from: number): string {
  return line.slice(line[from] === ' ' ? from + 1 : from)
}
