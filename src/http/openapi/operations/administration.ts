import type { Operations } from '../operation.js'
import { LIST_QUERY } from '../parameters.js'

export const administration: Operations = {
  'POST /v1/admin/gc': {
    id: 'collectGarbage',
    tag: 'Administration',
    summary: 'Collect old versions now',
    description: 'The server does so by itself every ten minutes. Answers when it is done.',
  },
  'POST /v1/admin/compact': {
    id: 'compact',
    tag: 'Administration',
    summary: 'Compact the table files',
    description:
      'Rewrites the table files of a range, or of everything, without what was deleted and overwritten. Answers when it is done. 503 `storage_unavailable` while writes are refused.',
  },
  'GET /v1/admin/load': {
    id: 'readLoad',
    tag: 'Administration',
    summary: 'Slow requests, and hot keys',
    description:
      'What this server is busy with: the latest requests that took `--slow-ms` or longer, by where their time went, and the keys that are used most. It names keys, and no values, so it needs a token that reads every key. It is never turned away under load. Of several servers on one table each tells of its own requests.',
  },
  'GET /v1/admin/pins': {
    id: 'listPins',
    tag: 'Administration',
    summary: 'List the pins',
    description: 'Snapshots that stay readable.',
    query: LIST_QUERY,
  },
  'POST /v1/admin/pins': {
    id: 'createPin',
    tag: 'Administration',
    summary: 'Pin a snapshot',
    description:
      'Keeps it readable for a time, over restarts too. There are at most 1000 pins: 503 `overloaded` beyond. Pins are of the store: where several servers share it, any of them lists, renews and removes them, and the bound is not exact.',
    problems: ['ts_below_safe_point'],
  },
  'PUT /v1/admin/pins/{pin}': {
    id: 'renewPin',
    tag: 'Administration',
    summary: 'Restart the time of a pin',
    description: 'It lasts for `ttl_ms` from now on.',
    problems: ['not_found'],
  },
  'DELETE /v1/admin/pins/{pin}': {
    id: 'deletePin',
    tag: 'Administration',
    summary: 'Remove a pin',
    description: 'The next collection may take its snapshot.',
    problems: ['not_found'],
  },
  'GET /v1/admin/backup': {
    id: 'backUp',
    tag: 'Administration',
    summary: 'Stream a backup',
    description:
      'Every pair of one snapshot, which `Snapshot-Ts` names. While a transaction that lives holds locks it is the one just below them, unless `ts` asks for another. A failure after the first pairs cuts the connection: a whole backup has an end.',
    query: {
      ts: {
        description: 'The snapshot. Default: the newest that no lock blocks; one in the future is refused.',
        schema: { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER },
      },
      start: {
        description: 'Leaves out the keys before it: with the same `ts`, the rest of a backup that was cut off.',
        schema: { type: 'string' },
      },
      lock_wait_ms: {
        description: 'How long to wait for each lock of another transaction. Default: 60 000.',
        schema: { type: 'integer', minimum: 0, maximum: 3_600_000 },
      },
    },
    problems: ['key_locked', 'payload_too_large', 'ts_below_safe_point'],
    answers: { 200: { description: 'The backup.', headers: ['Snapshot-Ts', 'Content-Disposition'] } },
  },
  'POST /v1/admin/restore': {
    id: 'restore',
    tag: 'Administration',
    summary: 'Restore a backup into an empty store',
    description:
      'Each pair keeps its `commit_ts`, so ETags and versions stay what they were. A store that has any record, of a deletion or a lock too, is left alone: 412 `precondition_failed`. Each block is verified before it is stored: what is damaged, cut off or of another version is 400 with `field` `body`, and so is a backup of over a day ahead of the clock.\n\nFrom the first block to the last other calls are 503 `storage_unavailable`, also after a crash, and `/v1/status` has `restoring`. The same call with a backup of the same `id`, from its beginning, goes on where it stopped; another one is 412. Only one runs at a time; a second is 503. On a shared store all servers of the table are shut out. Once it is complete, new timestamps are above every `commit_ts`, and so is the safe point.\n\nLimits of bodies and of time do not apply, but where nothing arrives for `--stalled-ms-max` it is cut off.',
    bytes: 'The backup, as `application/octet-stream`, or without a type and an `Origin`.',
    problems: ['precondition_failed', 'payload_too_large', 'unsupported_media_type'],
  },
}
