import type { Operations } from '../operation.js'
import { LIST_QUERY } from '../parameters.js'

export const observers: Operations = {
  'GET /v1/observers': {
    id: 'listObservers',
    tag: 'Observers',
    summary: 'List the observers',
    description: 'Only those whose whole range the token reaches.',
    query: LIST_QUERY,
  },
  'PUT /v1/observers/{name}': {
    id: 'putObserver',
    tag: 'Observers',
    summary: 'Register an observer',
    description: `An observer is a name and a range of keys. Every committed put or delete of a key in the range marks the key for the observer, in the same atomic write as the commit. Workers claim marked keys, run, and acknowledge the key in the transaction that has the results, so each change is covered by a committed run, and none by two. A key that expires is marked some 0.1 s later; \`delete_range\` of Percolator and a restore mark nothing.

Where the observer exists, its options are replaced, those that are not given by their defaults. The range stays. One of \`prefix\`, \`start\` and \`end\` is needed; \`"prefix": ""\` is every key. \`backfill\` on an existing observer starts one. On a shared store the call takes four seconds.`,
    problems: ['already_exists', 'not_found'],
    answers: { 200: { description: 'It exists, and has these options now.' }, 201: { description: 'It is new.' } },
  },
  'GET /v1/observers/{name}': {
    id: 'readObserver',
    tag: 'Observers',
    summary: 'State of an observer',
    description: 'Its range, options, queue and workers.',
    problems: ['not_found'],
  },
  'DELETE /v1/observers/{name}': {
    id: 'deleteObserver',
    tag: 'Observers',
    summary: 'Delete an observer',
    description: 'Forgets the observer and what it had to run.',
    problems: ['not_found'],
  },
  'POST /v1/observers/{name}/claim': {
    id: 'claimCells',
    tag: 'Observers',
    summary: 'Claim marked keys',
    description: `Takes cells that are ready, for the time of a lease. A lease keeps two workers from doing the same work; it decides nothing. Changes that come faster than they are claimed are one cell; there is no order among keys.

Answers empty when nothing came, and at once when the observer is paused and when the server stops; so a loop should pause after an empty answer that came early. 404 when the observer is deleted. Acknowledge by \`acks\` of [a transaction](#transact).`,
    problems: ['not_found'],
  },
  'POST /v1/observers/{name}/extend': {
    id: 'extendClaims',
    tag: 'Observers',
    summary: 'Extend leases',
    description: 'Gives claims a new lease.',
    problems: ['not_found'],
  },
  'POST /v1/observers/{name}/release': {
    id: 'releaseClaims',
    tag: 'Observers',
    summary: 'Give claims back',
    description:
      'With an `error` it is a failed run: the cell is delayed by the back-off, and parked at `max_attempts`. A lease that ends counts as one too. Claims that are not in force any more are passed over.',
    problems: ['not_found'],
  },
  'POST /v1/observers/{name}/notify': {
    id: 'notifyObserver',
    tag: 'Observers',
    summary: 'Mark keys',
    description: 'Marks keys that were not written.',
    problems: ['not_found'],
  },
  'POST /v1/observers/{name}/backfill': {
    id: 'backfillObserver',
    tag: 'Observers',
    summary: 'Mark every key of the range',
    description: 'Marks every key of the range that has a value, in the background.',
    problems: ['not_found'],
    answers: { 202: { description: 'It has begun.' } },
  },
  'POST /v1/observers/{name}/pause': {
    id: 'pauseObserver',
    tag: 'Observers',
    summary: 'Pause an observer',
    description: 'A paused observer hands nothing out, and is marked all the same.',
    problems: ['not_found'],
  },
  'POST /v1/observers/{name}/resume': {
    id: 'resumeObserver',
    tag: 'Observers',
    summary: 'Resume an observer',
    description: 'Ends a pause.',
    problems: ['not_found'],
  },
  'GET /v1/observers/{name}/parked': {
    id: 'listParked',
    tag: 'Observers',
    summary: 'List parked keys',
    description:
      'Cells that nobody runs any more, with the error of their last run. A change of its key runs one again, once.',
    problems: ['not_found'],
  },
  'POST /v1/observers/{name}/retry': {
    id: 'retryParked',
    tag: 'Observers',
    summary: 'Run parked keys again',
    description: 'They are ready as if they had never failed.',
    problems: ['not_found'],
  },
  'POST /v1/observers/{name}/skip': {
    id: 'skipParked',
    tag: 'Observers',
    summary: 'Give parked keys up',
    description: 'A later change of the key marks it again.',
    problems: ['not_found'],
  },
}
