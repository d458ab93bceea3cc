import { answering } from './call-schema.js'
import { Type } from './schema.js'
import { Count, described, Key, Milliseconds, optional } from './values.js'

const spent = (where: string) => described(Milliseconds, where)

export const load = answering(
  Type.Object({
    slow_ms: described(Milliseconds, 'Requests that take this long are slow: `--slow-ms`; 0: none is.'),
    slow: described(
      Type.Array(
        Type.Object({
          request_id: described(
            optional(Type.String()),
            'As in its problem and in the log. Short requests that succeed have none.',
          ),
          method: Type.String(),
          route: described(Type.String(), 'A pattern such as `/v1/kv/:key`.'),
          status: Type.Integer(),
          started_at: Type.String({ format: 'date-time' }),
          total_ms: spent('Until its answer began, without the time in which its body arrived.'),
          receive_ms: spent('While its body arrived.'),
          queue_ms: spent('Before it was begun, because many arrived at once.'),
          latch_ms: spent('Waiting for requests that wrote the same keys.'),
          lock_ms: spent('Waiting for locks of other transactions.'),
          read_ms: spent('Reading.'),
          write_ms: spent('Writing, with the fsync.'),
          other_ms: spent('Everything else: the processor, mostly.'),
          keys: described(Type.Array(Key), 'The beginnings of the first keys.'),
          start: described(optional(Key), 'Of its first range or prefix.'),
          end: optional(Key),
          is_cut: described(Type.Boolean(), 'Whether keys, or ends of keys, are left out here.'),
        }),
      ),
      'The latest 100 of this server, the newest first, since its start.',
    ),
    sampled_every: described(Type.Integer(), 'The hot keys are estimated from one of so many requests.'),
    hot_keys: described(
      Type.Array(
        Type.Object({
          key: Key,
          reads_per_minute: Count,
          writes_per_minute: described(Count, 'Over the last minute, about.'),
        }),
      ),
      'The keys that are used most, the hottest first; empty where none stands out.',
    ),
  }),
)
