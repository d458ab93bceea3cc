import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { Load, SlowRequest } from './answers.js'
import { Empty, Failure, KeyText, Panel } from './parts.js'
import { readableMs, readableTime } from './readable-time.js'
import { addressOf } from './route.js'
import { useSession } from './session.js'
import { useLoaded } from './use-loaded.js'
import { idOf } from './wire-bytes.js'

const EVERY_MS = 2000
const SHOWN_AT_FIRST = 10

/** Slow requests and hot keys, for tokens that reach every key. */
export function LoadPanels(): JSX.Element {
  const { server, access } = useSession()
  const mayAsk = access.prefixes === undefined
  const { value, error } = useLoaded(
    async (signal) => (mayAsk ? server.get<Load>('/v1/admin/load', signal) : undefined),
    [server, mayAsk],
    EVERY_MS,
  )
  const [isWhole, showAll] = useState(false)
  if (!mayAsk) return <Empty>Slow requests and hot keys are for tokens that reach every key.</Empty>
  const { slow = [], hot_keys: hotKeys = [], slow_ms: slowMs = 0 } = value ?? {}
  return (
    <>
      <Failure error={error} />
      <Panel title="Slow requests" aside={slowMs > 0 && <span class="quiet">{readableMs(slowMs)} or longer</span>}>
        {slow.length === 0 ? (
          <Empty>{noneText(value)}</Empty>
        ) : (
          <ul class="entries" aria-label="Slow requests">
            {slow.slice(0, isWhole ? slow.length : SHOWN_AT_FIRST).map((request) => (
              <Line key={`${request.started_at} ${request.total_ms} ${request.request_id}`} request={request} />
            ))}
          </ul>
        )}
        {slow.length > SHOWN_AT_FIRST && !isWhole && (
          <button type="button" class="more" onClick={() => showAll(true)}>
            Show all {slow.length}
          </button>
        )}
      </Panel>
      <Panel title="Hot keys" aside={<span class="quiet">per minute, estimated from a sample</span>}>
        {hotKeys.length === 0 ? (
          <Empty>{value === undefined ? 'Loading…' : 'No key is used much more than others.'}</Empty>
        ) : (
          <ul class="entries" aria-label="Hot keys">
            {hotKeys.map(({ key, reads_per_minute, writes_per_minute }) => (
              <li key={idOf(key)} class="entry">
                <a class="entry-name" href={addressOf('key', key)}>
                  <KeyText of={key} />
                </a>
                <dl class="numbers">
                  <div>
                    <dt>reads</dt>
                    <dd>{reads_per_minute}</dd>
                  </div>
                  <div>
                    <dt>writes</dt>
                    <dd>{writes_per_minute}</dd>
                  </div>
                </dl>
              </li>
            ))}
          </ul>
        )}
      </Panel>
    </>
  )
}

function noneText(load: Load | undefined): string {
  if (load === undefined) return 'Loading…'
  return load.slow_ms === 0
    ? 'This server calls no request slow: --slow-ms is 0.'
    : 'No request was slow since the start.'
}

function Line({ request }: { readonly request: SlowRequest }): JSX.Element {
  const { method, route, status, started_at, total_ms, keys, start, end, is_cut, request_id } = request
  return (
    <li class="entry">
      <h3 class="entry-name">
        {method} <span class="bytes">{route}</span> <span class={`badge ${status >= 400 ? 'bad' : ''}`}>{status}</span>
      </h3>
      <dl class="numbers">
        <div>
          <dt>took</dt>
          <dd class="nowrap">{readableMs(total_ms)}</dd>
        </div>
        <div>
          <dt>began</dt>
          <dd class="nowrap">{readableTime(new Date(started_at))}</dd>
        </div>
        <div>
          <dt>most of it</dt>
          <dd>{partsOf(request)}</dd>
        </div>
        {(keys.length > 0 || start !== undefined || end !== undefined) && (
          <div>
            <dt>{keys.length > 0 ? 'keys' : 'range'}</dt>
            <dd>
              {keys.map((key) =>
                is_cut ? (
                  <KeyText key={idOf(key)} of={key} />
                ) : (
                  <a key={idOf(key)} class="item" href={addressOf('key', key)}>
                    <KeyText of={key} />
                  </a>
                ),
              )}
              {keys.length === 0 && (
                <>
                  from {start === undefined ? 'the first key' : <KeyText of={start} />} to{' '}
                  {end === undefined ? 'the last key' : <KeyText of={end} />}
                </>
              )}
              {is_cut && ' …'}
            </dd>
          </div>
        )}
        {request_id !== undefined && (
          <div>
            <dt>request_id</dt>
            <dd class="bytes">{request_id}</dd>
          </div>
        )}
      </dl>
    </li>
  )
}

/** Where the time went, the longest parts first. */
function partsOf(request: SlowRequest): string {
  const parts: readonly (readonly [string, number])[] = [
    ['the processor', request.queue_ms + request.other_ms],
    ['writers of the same keys', request.latch_ms],
    ['locks', request.lock_ms],
    ['reading', request.read_ms],
    ['writing', request.write_ms],
    ['arrival of the body', request.receive_ms],
  ]
  const longest = parts.toSorted(([, a], [, b]) => b - a).slice(0, 2)
  return longest.flatMap(([name, ms]) => (ms >= 1 ? [`${name} ${readableMs(ms)}`] : [])).join(', ')
}
