/**
 * Deliberate defects, and how many seeds of the simulation it takes to find each: shows that it bites.
 *
 *   npm run sim:mutants -- [--seeds N] [--steps N] [--jobs N] [--only REGEXP] [--shared | --texts | --exhaustive]
 *
 * Each replaces texts of one compiled file, which have to be there exactly once. Exits 1 when one is not found
 * within --seeds that neither FOUND_ELSEWHERE nor a world of ../exhaustive names. With --texts nothing runs but the search for
 * the texts, which a rename breaks. With --exhaustive the search of ../exhaustive has to find those that its worlds name, instead
 * of seeds. With --shared nothing runs but those of several servers on one table. Prints a table: defect, file, first seed, kind
 * of violation.
 */
import { execFile } from 'node:child_process'
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const build = fileURLToPath(new URL('.build/', import.meta.url))

/** [what is wrong, file, text, replacement, another text, its replacement, ...] */
const MUTANTS = [
  // Actions
  [
    'prewrite sees no newer version',
    'percolator/actions/prewrite',
    'if (write.commitTs > request.startTs)',
    'if (false)',
  ],
  [
    'prewrite passes its own Rollback record',
    'percolator/actions/prewrite',
    'const own = rollbackOf(row.writes, request.startTs);',
    'const own = undefined;',
  ],
  [
    'a calculated commit_ts is not above reads',
    'percolator/actions/prewrite',
    'Math.max(context.maxTs, request.startTs,',
    'Math.max(request.startTs,',
  ],
  [
    'a lost pessimistic lock is always made good',
    'percolator/actions/prewrite',
    'if (newest !== undefined && newest.commitTs >= request.startTs)',
    'if (false)',
  ],
  [
    'a lock granted anew at a newer version counts',
    'percolator/actions/prewrite',
    'if (lock !== undefined && lock.forUpdateTs > forUpdateTsMax)',
    'if (false)',
  ],
  [
    'commit passes min_commit_ts',
    'percolator/actions/commit',
    'if (commitTs < lock.minCommitTs && !request.isDecided)',
    'if (false)',
  ],
  [
    'commit without its lock says done',
    'percolator/actions/commit',
    "if (record.kind === 'record' && record.write.type !== 'rollback')\n            return",
    'if (true)\n            return',
  ],
  [
    'rollback of a missing lock leaves no record',
    'percolator/actions/rollback',
    'mutations.push(...rollbackMark(row.key, startTs, isProtected, record.overlapped));',
    '',
  ],
  [
    'rollback of a lock leaves its value',
    'percolator/actions/rollback',
    "if (lock.type === 'put' && lock.shortValue === undefined)",
    'if (false)',
  ],
  [
    'check_txn_status ends async commit by its primary',
    'percolator/actions/check-txn-status',
    'if (lock.useAsyncCommit && !request.forceSyncCommit)',
    'if (false)',
  ],
  [
    'check_secondary_locks leaves no record',
    'percolator/actions/check-secondary-locks',
    'mutations.push(...rollbackMark(key, startTs, true, record.overlapped), ...collapsePrevious(row, startTs));',
    '',
  ],
  [
    'a read of the latest passes async commit',
    'percolator/actions/get',
    'ts !== TIMESTAMP_MAX || lock.useAsyncCommit ||',
    'ts !== TIMESTAMP_MAX ||',
  ],
  [
    'gc removes the newest Put',
    'percolator/actions/gc',
    'base !== undefined && !isVisible(base, safePoint) && !stands',
    'base !== undefined && !stands',
  ],
  [
    'gc leaves values',
    'percolator/actions/gc',
    "if (write.type === 'put' && write.shortValue === undefined)",
    'if (false)',
  ],
  [
    'validation passes locks',
    'percolator/actions/validate-reads',
    "lock.startTs < startTs ? 'conflict' : 'wait'",
    "'free'",
  ],
  [
    'validation passes newer versions',
    'percolator/actions/validate-reads',
    'write.commitTs > startTs && write.commitTs <= commitTs',
    'false',
  ],
  [
    'a locking read sees the snapshot',
    'percolator/actions/acquire-pessimistic-lock',
    'const version = newestPut(writes, TIMESTAMP_MAX, ',
    'const version = newestPut(writes, request.startTs, ',
  ],
  [
    'a repeat of a forced lock reads below it',
    'percolator/actions/acquire-pessimistic-lock',
    "const isForced = request.wakeUpMode === 'force_lock' && forUpdateTs < lock.forUpdateTs;",
    'const isForced = false;',
  ],
  [
    'a calculated commit_ts passes max_commit_ts',
    'percolator/actions/prewrite',
    'leastOfNew > request.maxCommitTs',
    'false',
  ],
  [
    'a heart beat raises min_commit_ts under async commit',
    'percolator/actions/txn-heart-beat',
    'lock.useAsyncCommit ? lock.minCommitTs :',
    '',
  ],
  ['a cleanup passes a commit', 'percolator/actions/cleanup', "if (missing.kind === 'committed')", 'if (false)'],
  [
    'a cleanup of a missing lock leaves no record',
    'percolator/actions/cleanup',
    "missing.kind === 'rolled_back_now' ? missing.mutations : []",
    '[]',
  ],
  // Store
  ['latches let everybody in', 'store/latches', 'if (holder.waitingFor > 0)', 'if (false)'],
  [
    'answers go out before the write',
    'store/leveldb/engine/group-commit',
    'await this.engine.write(ops, this.sync);',
    'void this.engine.write(ops, this.sync).catch(() => { });',
  ],
  [
    'no write is fsynced',
    'store/leveldb/engine/group-commit',
    'this.engine.write(ops, this.sync)',
    'this.engine.write(ops, false)',
  ],
  [
    'a failed write is answered as done',
    'store/leveldb/engine/group-commit',
    'group.answer(error);',
    'group.answer(undefined);',
  ],
  [
    'a write in one turn has no locks',
    'store/leveldb/rows/row-store',
    'new PublishedLocks(this, mutations, onePc, isShort',
    'new PublishedLocks(this, mutations, isShort ? undefined : onePc, isShort',
  ],
  [
    'a write in one turn sees no newer version',
    'store/leveldb/rows/row-store',
    'isAsked && this.recent.newest(key) < startTs',
    'isAsked',
  ],
  [
    'a failed write in one turn is answered as done',
    'store/leveldb/rows/row-store',
    'if (error !== undefined)\n                return done(guarded(error), undefined);',
    '',
  ],
  [
    'a check in one turn is not made',
    'txn/sync-commit',
    'requireChecks(checks, version, () => atHand(this.#store.leases.lost(commitEffects?.leases ?? [])));',
    '',
  ],
  [
    'a calculated commit_ts is not observed',
    'store/calls/prewrite',
    'rows.observe(commitTs ?? value.minCommitTs ?? 0)',
    'rows.observe(0)',
  ],
  [
    'recent writes are not noted',
    'store/leveldb/memory/recent-writes',
    'const slot = slotOf(key);\n        if (ts <= this.#at(slot))',
    'const slot = slotOf(key);\n        if (true)',
  ],
  [
    'recent writes forget at a restart',
    'store/leveldb/rows/row-store',
    'new RecentWrites(savedMark)',
    'new RecentWrites(0)',
  ],
  [
    'locks are not loaded at a restart',
    'store/leveldb/rows/load-locks',
    'locks.put(decodeKey(key), decodeLock(bytes));',
    ';',
  ],
  ['max_ts begins at 0', 'store/leveldb/rows/row-store', 'this.maxTs = savedMark;', 'this.maxTs = 0;'],
  [
    'reads do not raise max_ts',
    'store/leveldb/rows/row-store',
    'this.maxTs = Math.max(this.maxTs, Math.min(ts, this.oracle.last));',
    '',
  ],
  [
    'a 1PC batch in flight has no locks',
    'store/leveldb/rows/published-locks',
    'locks.put(key, inFlightLock(key, onePc, mutation.write.commitTs), this.#pending);',
    ';',
  ],
  [
    'a lock that a failed write ended comes back',
    'store/leveldb/rows/load-locks',
    "lock.type === 'pessimistic' && pending === undefined",
    "lock.type === 'pessimistic'",
  ],
  [
    'the safe point is not stored',
    'store/leveldb/rows/collection',
    "await this.#rows.submit([{ type: 'put', key: META_SAFE_POINT, value: packRecord([safePoint]) }]);",
    '',
  ],
  [
    'prewrites below the safe point are let in',
    'store/calls/prewrite',
    'if (startTs < rows.safePoint)\n        throw belowSafePoint(startTs, rows.safePoint);',
    '',
  ],
  [
    'CF_NEWEST keeps what is collected',
    'store/leveldb/rows/engine-ops',
    'if (storedTs(key) === mutation.commitTs)',
    'if (false)',
  ],
  [
    'an outcome is not stored under its key',
    'txn/outcomes',
    'key: outcomeKey(idempotency.key), value',
    "key: Buffer.concat([outcomeKey(idempotency.key), Buffer.from('x')]), value",
  ],
  [
    'a look-up on the event loop passes locks',
    'store/leveldb/rows/reads',
    'if (entry !== undefined && blocks(entry, ts)) {',
    'if (false) {',
  ],
  [
    'the cache takes a fill that a write has overtaken',
    'store/leveldb/memory/version-cache',
    'if (this.#fills.get(text) !== fill)\n            return;\n        this.#fills.delete(text);\n        this.#put',
    'this.#put',
  ],
  // Coordinator
  [
    'a lost answer is no doubt',
    'coordinator/committer',
    'if (decides)\n                    this.#isUncertain = true;',
    ';',
  ],
  ['a refusal rules out late copies', 'coordinator/committer', 'mayChange(error))', 'false)'],
  [
    'async commit at the last min_commit_ts',
    'coordinator/committer',
    'commitTs = Math.max(commitTs, minCommitTs)',
    'commitTs = minCommitTs',
  ],
  [
    '2PC does not validate reads',
    'coordinator/committer',
    'if (reads !== undefined || this.#leases.length > 0) {',
    'if (false) {',
  ],
  [
    'committed before all are prewritten',
    'coordinator/committer',
    'await this.#prewriteAll(batches, kind)',
    "await this.#prewriteAll(kind === 'two_pc' ? batches.slice(0, 1) : batches, kind)",
  ],
  [
    'a missing secondary does not count',
    'coordinator/lock-resolver',
    'else if (answer.locks.length < primary.secondaries.length)',
    'else if (false)',
  ],
  [
    'a collected commit is taken for a rollback',
    'coordinator/lock-resolver',
    'if (commitTs === 0)\n            await this.#requireNotCollected(primary, startTs);',
    '',
  ],
  ['what was read for update is not locked', 'coordinator/transaction', "mutations.push({ op: 'lock', key });", ';'],
  [
    'own writes are not to be read',
    'coordinator/transaction',
    'const own = this.#buffer.get(key);\n        if (own !== undefined)\n            return own ?? undefined;\n        this.#recordKey(key);',
    'this.#recordKey(key);',
  ],
  // Collection
  ['pins hold nothing back', 'gc/pins', "yield { by: 'pin', ts: pin.ts };", ';'],
  ['pins are not stored', 'store/record-table', 'before, bytes, extraRecords)', 'before, undefined, extraRecords)'],
  // Observers
  [
    'resolving a lock marks nothing',
    'store/calls/resolve-lock',
    'mutations.push(...outcome.mutations);',
    'mutations.push(...outcome.mutations.map((mutation) => ({ ...mutation, isFlag: true })));',
  ],
  [
    'a commit of two phases marks without a look at the notification',
    'store/leveldb/rows/row-store',
    'isNewestCommit(onePc) && !isAnyAhead ? undefined : this.#notificationSync',
    'undefined',
  ],
  [
    'a parked change may be hidden',
    'observers/rules/mark',
    'if (notification !== undefined || failure === undefined || failure.parkedTs === 0)',
    'if (true)',
  ],
  ['a flag on a record is taken for a commit', 'store/observed', '&& !mutation.isFlag ', ''],
  [
    'what a run writes marks the cell that it acknowledges',
    'store/observed',
    "acknowledged?.has(cellName('notify', observer.id, key))",
    'false',
  ],
  [
    'a run commits though another one has since its claim',
    'observers/rules/acknowledge',
    'if (ack !== undefined && ack.commitTs > claimed)',
    'if (false)',
  ],
  [
    'the notification goes with any run',
    'observers/rules/acknowledge',
    'const isClean = notification.changeTs <= seen;',
    'const isClean = true;',
  ],
  [
    'a run without a change of its own commits',
    'observers/rules/acknowledge',
    'if (!isClean && !isUncovered(context.newestSeen(), context))',
    'if (false)',
  ],
  ['a run below the safe point commits', 'observers/rules/acknowledge', 'if (claimed < safePoint)', 'if (false)'],
  [
    'a one-shot has seen its start_ts',
    'observers/rules/asked-effects',
    'seen: seesFence ? fence : startTs',
    'seen: startTs',
  ],
  [
    'acknowledgements are collected above the safe point',
    'observers/marks/marked-keys',
    'collectAcks(this.#observerSources.cells, observer.id, safePoint, pace)',
    'collectAcks(this.#observerSources.cells, observer.id, Number.MAX_SAFE_INTEGER, pace)',
  ],
  [
    'a skip is not acknowledged',
    'observers/failed-run',
    'ack: { ackTs: ts, commitTs: ts, startTs: 0 }, failure: null',
    'failure: null',
  ],
  [
    'the dispatcher drops what has no room',
    'observers/marks/dispatcher',
    'this.#leave(cell.text);\n        const isWorthIt',
    'const isWorthIt',
  ],
  [
    'observers are registered after the first writes',
    'observers/observers',
    'await observers.#dirty.open();',
    'setTimeout(() => void observers.#dirty.open(), 20);',
  ],
  // The log of changes, resolved_ts, and the feed
  [
    'resolved_ts passes 1PC batches in flight',
    'store/leveldb/memory/lock-table',
    'if (bound === undefined)\n        heap.delete(entry);',
    'if (bound === undefined || entry.lock.txnSize === -1)\n        heap.delete(entry);',
  ],
  ['resolved_ts passes batches in doubt', 'store/leveldb/rows/resolved-ts', 'if (!health.isWritable)', 'if (false)'],
  ['resolved_ts does not raise max_ts', 'store/leveldb/rows/resolved-ts', 'this.#rows.raiseMaxTs(this.#last);', ''],
  [
    'resolved_ts passes a removal that is being made',
    'store/leveldb/rows/resolved-ts',
    'for (const ts of this.#holds)',
    'for (const ts of [])',
  ],
  [
    'a prewrite below resolved_ts needs no min_commit_ts',
    'percolator/actions/prewrite',
    'startTs > passedTs ?',
    'startTs > 0 ?',
  ],
  ['a commit below a removal comes after it', 'store/leveldb/rows/range-deletion', 'changes.resolved.pass(ts);', ''],
  [
    'changes are logged with the next group',
    'store/leveldb/engine/group-commit',
    'this.logOf(changes)',
    'this.logOf((this.late = [this.late?.[1] ?? [], [...changes]])[0])',
  ],
  [
    'the log is trimmed above the safe point',
    'store/leveldb/rows/collection',
    'logBound(Math.max(0, safePoint - RECORD_SPAN))',
    'logBound(safePoint + RECORD_SPAN)',
  ],
  [
    'a change of a later record comes too late',
    'store/leveldb/rows/change-log',
    'merged.takeBefore(first)',
    'merged.takeBefore()',
  ],
  [
    'records that overlap are not merged',
    'store/leveldb/rows/merged-changes',
    'compareChanges(last, first) <= 0)\n            for',
    'true)\n            for',
  ],
  [
    'a reader begins at the record of its position',
    'store/leveldb/rows/change-log',
    'logBound(Math.max(0, since - RECORD_SPAN))',
    'logBound(since)',
  ],
  [
    'a reader goes on where the log was trimmed',
    'store/leveldb/rows/change-log',
    'if (since < this.start)',
    'if (false)',
  ],
  [
    'the feed does not look at the log after a failed write',
    'changes/feed',
    'reloaded: () => this.#fallBackOnLog(),',
    'reloaded: () => { },',
  ],
  ['nobody ends dead locks that hold the feed back', 'gc/expired-locks', 'this.#looks++;', 'return;'],
  ['a snapshot begins below the safe point', 'changes/changes', 'Math.max(feed.resolved, log.start)', 'feed.resolved'],
  [
    'a lock holds a collection back above resolved_ts',
    'gc/gc-worker',
    'locked.add(Math.max(startTs - 1, store.safePoint))',
    'locked.add(startTs)',
  ],
  // Oracle
  ['the mark is not waited for', 'oracle/oracle', 'if (last >= this.#mark)', 'if (false)'],
  [
    'a restart begins at the clock',
    'store/leveldb/leveldb-store',
    '{ mark: savedMark, jumps: savedJumps, extraMs: savedExtraMs }',
    '{ savedMark = 0, jumps: savedJumps, extraMs: savedExtraMs }',
  ],
  ['ages go by the wall clock', 'oracle/clock', 'return this.now() - this.#jumpedMs;', 'return this.now();'],
  [
    'what the clock jumped by is not saved',
    'store/leveldb/rows/saved-mark',
    'jumps.length > 0 || extraMs > 0',
    'extraMs > 0',
  ],
  [
    'a commit_ts that comes next is not observed',
    'oracle/oracle',
    'ts === this.#last + 1 ? ts : Math.min(ts, this.clock())',
    'Math.min(ts, this.clock())',
  ],
  [
    'a version that was replaced expires',
    'store/leveldb/rows/expiries',
    'let write = bytes && decodeNewest(bytes);',
    'let write = bytes && (await readOlderVersion(engine, key, commitTs));',
  ],
  [
    'expiry goes by the clock',
    'store/visibility',
    'if (isVisible(write, this.#at))',
    'if (isVisible(write, this.#source.oracle.clock()))',
  ],
  [
    'what has expired is visible',
    'percolator/write',
    'return expireTs !== 0 && expireTs <= ts;',
    'return expireTs !== 0 && expireTs < ts - 2048;',
  ],
  [
    'a serializable transaction may see what expires',
    'percolator/actions/validate-reads',
    'return !hasExpired(expireTs, startTs) && hasExpired(expireTs, commitTs);',
    'return false;',
  ],
  [
    'a collection does not wait for the marks of what has expired',
    'observers/marks/expiry-marks',
    'await this.#alone(() => this.#passTo(safePoint));',
    '',
  ],
  [
    'the cursor of the expiries is ahead of their marks',
    'observers/marks/expiry-marks',
    'const passed = (page.at(-1)?.commitTs ?? upTo) - 1;',
    'const passed = upTo;',
  ],
  [
    'expiries are marked up to the clock',
    'observers/marks/expiry-marks',
    'await this.#markUpTo(since, log.resolve(), ',
    'await this.#markUpTo(since, store.time.clock(), ',
  ],
  [
    'what a run has seen is marked',
    'store/leveldb/rows/cell-calls',
    '(ack !== undefined && ack.ackTs >= commitTs)',
    'false',
  ],
  [
    'an acknowledgement does not count what expired',
    'store/leveldb/rows/commit-effects',
    'return hasExpired(newest.expireTs, ts) ? expiryTs(newest) : newest.commitTs;',
    'return newest.commitTs;',
  ],
  ['a live feed passes over what expires', 'changes/feed', 'if (!log.mayExpire(this.#resolved, upTo))', 'if (true)'],
  // Leases
  [
    'a lease is checked at start_ts',
    'store/leveldb/rows/commit-effects',
    'const lost = atHand(leases.lost(this.#leases));',
    'const lost = leases.lost(this.#leases).filter(({ fence }) => fence === 0 || fence < startTs);',
  ],
  [
    'a lease is checked when the prewrite comes',
    'store/leveldb/rows/commit-effects',
    'this.#leases = leases;',
    'this.#leases = rows.leases.lost(leases).length > 0 ? leases : [];',
  ],
  [
    'a lease that has run out passes the check',
    'leases/terms-in-memory',
    'return slot !== undefined && this.#isHeld(slot) ? slot.record.fence : 0;',
    'return slot !== undefined && slot.endsAtMs > 0 ? slot.record.fence : 0;',
  ],
  [
    'a transaction that writes nothing needs no lease',
    'txn/one-shots',
    'await requireLeases(this.#store.leases, commitEffects ?? {});',
    ';',
    'checksFailed(failed, await this.#store.leases.lost(commitEffects?.leases ?? []))',
    'checksFailed(failed, [])',
  ],
  [
    'a restart renews no lease',
    'leases/terms-in-memory',
    'terms.#extend(slot, RESTART_MS);',
    'terms.#extend(slot, physicalMs(record.fence) - physicalMs(store.now()));',
  ],
  [
    'a renewal revives a lease after the next grant',
    'leases/leases',
    "else if (verdict === 'other_fence')",
    `else if (verdict === 'other_fence' && request.fence < held?.fence) {
            const { holder, fence, ttlMs } = request;
            return Promise.resolve(this.#terms.swap(name, seen, { ...record, holder, fence, ttlMs })).then((revived) => {
                if (revived === undefined)
                    return false;
                round.seen = revived;
                this.#answer(waiting, revived.held);
                return true;
            });
        }
        else if (verdict === 'other_fence')`,
  ],
  [
    'a lease may end while another TTL is written for it',
    'leases/terms-in-memory',
    'slot.writing = written.then(',
    "slot.writing = next?.state === 'held' && next.fence === record.fence ? undefined : written.then(",
  ],
  [
    'a record is removed after the next grant',
    'leases/terms-in-memory',
    'if (slot?.record !== seen.record || slot?.writing !== undefined)',
    'if ((next !== undefined && slot?.record !== seen.record) || slot?.writing !== undefined)',
  ],
  [
    'a fence is taken when the wait for it begins',
    'leases/leases',
    "this.#waiting.stay(waiting);\n        }\n        else if (verdict === 'other_fence'",
    '{\nrequest.early ??= Promise.resolve(this.#store.tso(1)).catch(() => undefined);\nthis.#waiting.stay(waiting);\n}\n        }\n        else if (verdict === "other_fence"',
    'grant(holder, ttlMs, await this.#store.tso(1))',
    'grant(holder, ttlMs, (await request.early) ?? (await this.#store.tso(1)))',
  ],
  [
    'a grant is answered before it is on disk',
    'leases/terms-in-memory',
    'return written;',
    `if (next?.state === 'held' && next.fence !== record.fence) {
            written.catch(() => { });
            slot.record = next;
            this.#extend(slot);
            return Promise.resolve(this.#seen(slot));
        }
        return written;`,
  ],
  [
    'a release is answered before it is on disk',
    'leases/leases',
    "if (await this.#ended(name, seen, 'released'))\n                return { deleting: false };\n            if",
    "const ended = this.#ended(name, seen, 'released');\nended.catch(() => { });\nif (!hasKeysToEnd(record) || (await ended))\n                return { deleting: false };\n            if",
  ],
  [
    'another TTL is answered before it is on disk',
    'leases/terms-in-memory',
    'return written;',
    `if (next?.state === 'held' && next.fence === record.fence) {
            written.catch(() => { });
            slot.record = next;
            this.#extend(slot);
            return Promise.resolve(this.#seen(slot));
        }
        return written;`,
  ],
  // Keys that are attached to leases
  [
    'what is attached is not kept attached',
    'percolator/actions/prewrite',
    'return exists(replaced, request) ? attachedFence(writes) : 0;',
    'return 0;',
  ],
  ['a lock loses the lease', 'percolator/actions/commit', 'leaseFence: lock.leaseFence', 'leaseFence: 0'],
  [
    'the end of a lease deletes what is attached no more',
    'leases/attached-keys',
    'if (isAttached && areOver)',
    'if (areOver)',
  ],
  [
    'a lease is granted before its keys are deleted',
    'leases/leases',
    'else if (held === undefined && record !== undefined && hasKeysToEnd(record))\n',
    'else if (false)\n',
  ],
  ['a restart does not know what is attached', 'leases/leases', 'await keys.fences()', 'new Set()'],
  [
    'the keys of a lease go before its record says so',
    'leases/terms-in-memory',
    'const written = this.#store.system\n            .write([change])',
    "const written = (next?.state === 'ending' ? Promise.resolve() : this.#store.system.write([change]))",
  ],
  [
    'a key is attached without its row',
    'leases/attached-keys',
    'rows: [...added.values()].flat().map(',
    'rows: [...added.values()].flat().slice(1).map(',
  ],
]

/** The same of several servers on one table. */
const SHARED = [
  // Commits in one phase
  [
    'a read at a timestamp passes rows that the table has locked',
    'store/table/rows/reads',
    'return { settled: ts !== TIMESTAMP_MAX };',
    'return { settled: false };',
  ],
  [
    'what was read is validated past rows that the table has locked',
    'store/table/rows/reads',
    'rows({ keys: keys.map(rowKeyOf), columns, settled: true })',
    'rows({ keys: keys.map(rowKeyOf), columns })',
  ],
  [
    'a commit_ts in one phase is taken before the rows are locked',
    'store/table/rows/table-rows',
    'let isGivenUp = false;',
    'let isGivenUp = false;\n        const early = await this.#source.next();',
    'const commitTs = await this.#source.next();\n            await this.#decisions.before',
    'const commitTs = early;\n            await this.#decisions.before',
  ],
  [
    'a commit in one phase asks nobody who reads the changes',
    'store/table/rows/table-rows',
    'isGivenUp = this.#decisions.hasReaders || ',
    'isGivenUp = ',
    ' || this.#decisions.hasReaders)\n            return undefined',
    ')\n            return undefined',
  ],
  [
    'a commit in one phase leaves no hints',
    'store/table/rows/table-rows',
    'isGivenUp = this.#decisions.hasReaders || (await this.#hints.areNeeded(written, commitTs));',
    'isGivenUp = this.#decisions.hasReaders;',
    'if (await this.#hints.areNeeded(written, this.#source.last))',
    'if (false)',
  ],
  [
    'an unknown commit in one phase is taken for refused',
    'store/table/rows/table-rows',
    'return { isWhole: false, mayHaveLanded: changed.wasUncertain };',
    'return { isWhole: false, mayHaveLanded: false };',
  ],
  [
    'rows are written without a condition',
    '../test/store/table/table-rows',
    'if (!this.isAs(key, expected))',
    "if (!this.isAs(key, expected) && expected.family !== 'v')",
  ],
  [
    'every server hands out ranges of its own',
    'oracle/leader-oracle',
    'const { last } = await this.#request({ count, floor: 0 });',
    `if (!(this.rangeLeft >= count)) {
            this.rangeLast = (await this.#request({ count: count + 999, floor: 0 })).last;
            this.rangeLeft = count + 999;
        }
        this.rangeLeft -= count;
        if (this.rangeLeft >= 0) return this.rangeLast - this.rangeLeft;
        const { last } = await this.#request({ count, floor: 0 });`,
  ],
  [
    'a leader trusts its memory',
    'oracle/leader-oracle',
    'if (proof.id !== this.#id || proof.epoch !== this.#epoch)\n                return;',
    '',
    'const proof = this.#note(await this.#read());',
    '',
  ],
  [
    'commit_ts is taken before the locks stand',
    'coordinator/committer',
    'const answers = await this.#prewriteAll(batches, kind);',
    'this.earlyTs = await this.context.api.tso(1); const answers = await this.#prewriteAll(batches, kind);',
    'const commitTs = await this.#nextCommitTs();',
    'const commitTs = (tries === 0 && this.earlyTs) || (await this.#nextCommitTs());',
  ],
  [
    'a guess needs no proof',
    'store/table/rows/table-rows',
    'if (forgetGuesses(held, (_, i) => !toWrite.has(i)))\n            return undefined;',
    '',
  ],
  [
    'a refusal rests on a guess',
    'store/table/rows/table-rows',
    'if (forgetGuesses(held, () => true))\n                return undefined;',
    '',
  ],
  [
    'a repeated change that is refused was not done',
    'store/table/layout/certain-change',
    'return tries > 1 && (await isDone());',
    'return false;',
  ],
  [
    'a lost answer says that it is done',
    'store/table/layout/certain-change',
    "if (changed === 'done')",
    "if (changed !== 'refused')",
  ],
  [
    'a repeat of a change has a revision of its own',
    'store/table/rows/row-table',
    'certainChange(this.#table, rowKey,',
    'certainChange({ change: (k, e, w) => this.#table.change(k, e, [...w.slice(0, -1), ...writesOf([], this.#revisions.next())]) }, rowKey,',
  ],
  [
    'the primary does not go first',
    'store/table/rows/table-rows',
    'const first = primaryOf(rows, toWrite, startTs) ??',
    'const first = undefined ??',
  ],
  [
    'a refused prewrite takes back what others have changed',
    'store/table/rows/table-rows',
    'const { row: after } = await this.#table.change(row, undone);',
    "const [now] = await this.#table.read([key], 'none', 0); const { row: after } = await this.#table.change(now, undone);",
  ],
  ['a repeat leaves the locks their revision', 'store/table/rows/table-rows', 'if (onePc !== undefined)', 'if (false)'],
  [
    'a copy of the safe point has any age',
    'store/table/rows/safe-point',
    'return ageMs > STALE_S * this.secondMs;',
    'return false;',
  ],
  [
    'a safe point counts at once',
    'store/table/rows/safe-point',
    'this.#knownToAllMs ?? KNOWN_TO_ALL_S * this.secondMs',
    '0',
  ],
  [
    'what is below the safe point is collected before its locks are ended',
    'store/table/rows/collection',
    'const safePoint = Math.min(wanted, this.#safePoint.cleared);',
    'const safePoint = wanted;',
    'await this.#safePoint.clear(wanted);',
    '',
  ],
  [
    'a collection takes what it wants for what was raised',
    'gc/collect-garbage',
    'const safePoint = await store.upkeep.raiseSafePoint(wanted, pace?.signal);',
    'const safePoint = Math.max(wanted, await store.upkeep.raiseSafePoint(wanted, pace?.signal));',
  ],
  [
    'what may have been done is refused below the safe point',
    'store/table/rows/table-rows',
    "if (isRepeat && isKvError(decision.error, 'ts_below_safe_point'))",
    'if (false)',
  ],
  ['resolve_lock commits what was cleared', 'store/calls/resolve-lock', 'startTs < (rows.clearedTs ?? 0)', 'false'],
  [
    'a row goes before all know that it was cleared',
    'store/table/rows/collection',
    'Math.min(safePoint, this.#safePoint.clearedForAll)',
    'safePoint',
  ],
  [
    'an outcome is written behind its commit',
    'txn/one-shots',
    'await txn.put(row.key, row.value);',
    '{}',
    'this.#outcomes.stored(stored, row);',
    'await this.#outcomes.store(stored, answer);',
  ],
  [
    'a delete_range leaves no revision',
    'store/table/rows/collection',
    'await this.#rows.clear(row)',
    'await this.#rows.remove(row)',
  ],
  [
    'a record is removed without a condition',
    'store/table/layout/server-record',
    'if (await replaceRecord(table, row, present, tombstone))',
    "if (await certainChange(table, row, { ...COLUMN, qualifier: Buffer.from('absent'), value: undefined }, [{ ...COLUMN, value: undefined }], { isDone: async () => true }))",
  ],
  [
    'a removed pin leaves nothing',
    'store/table/records/system-rows',
    'return tombstoneOf(this.#revisions.next())',
    'return undefined',
  ],
  [
    'a row takes Puts whatever its size',
    'store/table/rows/row-table',
    'return bytesOf(sizeOf(revision)) >= this.#rowBytesMax',
    'return false',
  ],
  [
    'a collection does not count',
    'store/table/rows/row-table',
    'return withSize(next, collectedTo(size, upTo, newest))',
    'return withSize(next, size)',
  ],
  ['a record may have any length', 'store/table/layout/certain-change', 'requireChangeable(writes);', ''],
  // Two: interactive transactions; a pin of another server, a moment old.
  ['another server holds no snapshot', 'gc/gc-worker', "{ by: 'transaction', ts: elsewhere },", ''],
  ['pins of other servers are not looked for', 'gc/gc-worker', 'if (registry.isShared)', 'if (false)'],
  [
    'the end of a term is not compared with the commit_ts',
    'store/table/table-store',
    'await this.leases.require(leases, commitTs);',
    'await this.leases.require(leases, 1);',
  ],
  [
    'no lease is looked at before a commit',
    'store/table/table-store',
    'await this.leases.require(leases, commitTs);',
    '',
  ],
  [
    'a lease is granted before its end',
    'leases/rules/lease-record',
    'ts < lease.endsTs ? lease',
    'ts < lease.endsTs - 262144000 ? lease',
  ],
  [
    'a lease ends without its keys',
    'leases/rules/lease-record',
    "return lease?.state === 'ending' || (lease?.state === 'held' && lease.hasKeys);",
    'return false;',
  ],
  ['a stored outcome is not told', 'txn/outcomes', 'found === undefined || this.isFree(found)', 'true'],
  [
    'a run does not wait for locks',
    'observers/rules/hinted-cell',
    'if (lock !== undefined && lock.startTs !== startTs && blocksRead(lock, key, ts))',
    'if (false)',
  ],
  [
    'a run says that it has seen what comes now',
    'observers/hints/effects-as-rows',
    'putRow(cell.ackKey, encodeAckTs(seen));',
    'putRow(cell.ackKey, encodeAckTs(sources.store.clock()));',
  ],
  [
    'a run forgets what it has not seen',
    'observers/hints/effects-as-rows',
    'if (isStill(present) && left === undefined)',
    'if (true)',
  ],
  [
    'what commits attached keys marks nothing',
    'leases/attached-keys',
    'await this.#store.leases.attaches({ index, ...guard });',
    '',
  ],
  ['locks are not hinted at', 'store/table/rows/table-rows', 'if (marking.length > 0)', 'if (false)'],
  [
    'a hint goes though its change is about to commit',
    'observers/rules/hinted-cell',
    'return !isChanging(lock) && !notified.some((row) => isChanging(row.lock));',
    'return true;',
  ],
  [
    'an observer takes effect at once',
    'observers/hints/hinted-keys',
    'ts + timestampFromMs(this.#cells.registeringMs)',
    'ts',
  ],
  [
    'a run does not hide what it has not seen',
    'observers/hints/effects-as-rows',
    'if (all !== undefined && all.changeTs > seen && written.has(keyText(effect.key)))',
    'if (false)',
  ],
  [
    'a run passes locks that its own write is going to hide',
    'observers/hints/effects-as-rows',
    'written.has(keyText(cell.key)) ? startTs : seen',
    'seen',
  ],
  [
    'what a run leaves of a parked cell is not hinted at',
    'observers/hints/effects-as-rows',
    'await unpark(cells, id, cell, { commitTs: left.changeTs, depth: left.depth });',
    'await cells.replaceFailure(id, cell, undefined);',
  ],
  [
    'a commit that loses a race is refused, whatever it has written',
    'store/table/rows/table-rows',
    'const mayHaveLanded = atOnce?.mayHaveLanded || (isRepeat && ![...plan.toWrite.values()].every(onlyLocks))',
    'const mayHaveLanded = atOnce?.mayHaveLanded',
  ],
  [
    'a notification before since_ts is answered',
    'observers/hints/hinted-keys',
    'if (sinceTs >= this.#sources.store.time.nextTsMin)',
    'if (false)',
  ],
  [
    'a retry leaves a notification too deep',
    'observers/rules/hinted-cell',
    'const isRetried = hint !== undefined && hint.commitTs === committed.commitTs;',
    'const isRetried = false;',
  ],
  // Logs of servers
  [
    'readers pass decisions without an outcome',
    'store/table/log/open-log',
    'closable = Math.min(closable, commitTs - 1);',
    'void commitTs;',
  ],
  [
    'the primary does not wait for its decision',
    'store/table/log/server-log',
    'if (await this.#isAppended(log.decide(decision)))',
    'void this.#isAppended(log.decide(decision)).catch(() => { });\n            if (true)',
  ],
  [
    'a commit that readers may have passed is not refused',
    'store/table/log/server-log',
    'if (commit.commitTs > log.closed)',
    'if (true)',
  ],
  [
    'a log is ended without a condition',
    'store/table/log/log-reader',
    'await certainChange(this.#table, row, chunkIs(last.revision), writes,',
    "await certainChange(this.#table, row, { ...chunkIs(undefined), qualifier: Buffer.from('absent') }, writes,",
  ],
  [
    'a server appends to a log that was ended',
    'store/table/log/open-log',
    'await this.#change(this.#chunk, chunkIs(this.#revision), writes,',
    "await this.#change(this.#chunk, { ...chunkIs(undefined), qualifier: Buffer.from('absent') }, writes,",
  ],
  [
    'a log that is ended does not ask primaries',
    'store/table/log/log-reader',
    'const isCommitted = (await this.#end(decision)) === commitTs;',
    'const isCommitted = true;',
  ],
  [
    'a log begins without its row',
    'store/table/log/open-log',
    'await certainChange(options.table, logRow(log.id), absent,',
    'void certainChange(options.table, logRow(log.id), absent,',
  ],
  [
    'a reader notes the newest timestamp behind the list of logs',
    'store/table/log/log-reader',
    'let resolved = this.#source.last;',
    'await this.#list();\n        let resolved = this.#source.last;',
    'await this.#list();\n        await this.#readLast();',
    'await this.#readLast();',
  ],
  [
    'a log goes though its last chunk tells of commits above',
    'store/table/log/log-reader',
    'return highestOf(head, committedIn(entries));',
    'return highestOf(head, entries.flatMap(({ decisions }) => decisions));',
  ],
  [
    'locks of secondaries do not count as records',
    'store/table/log/table-change-log',
    '(await commitTsOf(key, lock)) === commitTs ? lock : undefined',
    'undefined',
  ],
  [
    'locks of other transactions count as records',
    'store/table/log/table-change-log',
    '(await commitTsOf(key, lock)) === commitTs ? lock : undefined',
    'lock',
  ],
  [
    'a primary that was removed has committed nothing',
    'store/table/table-store',
    ' || look(decision.keys, decision.startTs)',
    '',
  ],
  [
    'locks are ended in the order of their keys',
    'store/table/rows/table-rows',
    'if (sameKey(locked, lock.primary))',
    'if (false)',
  ],
  ['what expires is not noted', 'store/table/log/decisions', 'this.putExpiries(expiring)', 'undefined'],
  ['a delete_range is not logged', 'store/table/log/decisions', 'if (!this.isLogged(ts)) {', 'if (true) {'],
  [
    'a removal whose server failed is not finished',
    'store/table/log/decisions',
    'void this.#end(removal, settle);',
    'settle(false);',
  ],
  [
    'a collection passes resolved_ts',
    'store/table/log/log-collection',
    'Math.min(safePoint, await log.resolve())',
    'safePoint',
  ],
]

/** Defects that 300 seeds did not find, with what they take, and the tests that find them instead. */
const FOUND_ELSEWHERE = new Map([
  // Two: a reader of what a raw client writes. Prewrites of coordinators are `linearizable`, and so above every read.
  ['max_ts begins at 0', 'test/store/snapshot-isolation.test.ts'],
  ['reads do not raise max_ts', 'test/store/snapshot-isolation.test.ts'],
  // A restart that loses a pessimistic lock, another writer, then a late copy of the request.
  ['a lock granted anew at a newer version counts', 'test/coordinator/committer.test.ts'],
  // A one-phase commit of a key that is only locked, whose write fails and lands.
  ['a lock that a failed write ended comes back', 'test/store/leveldb/rows/write-failure.test.ts'],
  // The rollback of a transaction whose start_ts is the commit_ts of another on an observed key.
  ['a flag on a record is taken for a commit', 'test/store/suite/marked-cells.ts'],
  // A removal of few keys whose write fails on a full disk, so that the database is not opened again.
  ['resolved_ts passes batches in doubt', 'test/store/leveldb/rows/range-deletion.test.ts'],
  // A raw client whose start_ts and commit_ts are just below a removal that it comes after.
  ['a commit below a removal comes after it', 'test/store/suite/changes.ts'],
  // A reader that begins between two commits that share a write.
  ['a reader begins at the record of its position', 'test/store/suite/changes.ts'],
  // A write that fails and lands while a stream is live, and nothing else that sends the feed to the log.
  ['the feed does not look at the log after a failed write', 'test/changes/feed.test.ts'],
  // A stream that begins while a collection has raised the safe point, and has not ended all locks below it.
  ['a snapshot begins below the safe point', 'test/changes/changes.test.ts'],
  // A reader whose position is just below the start_ts of a lock that lives, when a collection comes.
  ['a lock holds a collection back above resolved_ts', 'test/gc/gc-worker.test.ts'],
  // A clock that has passed the saved mark, and a crash while the next one is being saved.
  ['the mark is not waited for', 'test/oracle/oracle.test.ts'],
  // A collection that takes a version between its expiry and the next look for what has expired.
  ['a collection does not wait for the marks of what has expired', 'test/observers/expiry-marks.test.ts'],
  // A crash between two batches of marks of keys that expire together.
  ['the cursor of the expiries is ahead of their marks', 'test/observers/expiry-marks.test.ts'],
  // A run that has seen an expiry and not the put above it.
  ['an acknowledgement does not count what expired', 'test/store/suite/expired-versions.ts'],
  // A lease that ends while a commit under it waits for the latches of its keys.
  ['a lease is checked when the prewrite comes', 'test/leases/leases.test.ts'],
  // A write of another TTL that is slow or fails.
  ['another TTL is answered before it is on disk', 'test/leases/leases.test.ts'],
  // A removal that fails, a grant before it is tried again, and then a crash.
  ['a record is removed after the next grant', 'test/leases/leases.test.ts'],
  // Commits in one phase are few, and one has to have its commit_ts while another one validates what it has read.
  ['what was read is validated past rows that the table has locked', 'test/store/table/joint-commits.test.ts'],
  // Five: a lock or a read that is late by a whole collection.
  ['resolve_lock commits what was cleared', 'test/store/table/collection.test.ts'],
  ['a row goes before all know that it was cleared', 'test/store/table/collection.test.ts'],
  ['a safe point counts at once', 'test/store/table/collection.test.ts'],
  ['a copy of the safe point has any age', 'test/store/table/collection.test.ts'],
  ['a commit that loses a race is refused, whatever it has written', 'test/store/table/collection.test.ts'],
  // Three: a lock that is written over a row that is gone, a transaction that begins while a collection looks for locks, and a
  // commit that is repeated after one.
  ['what is below the safe point is collected before its locks are ended', 'test/store/table/collection.test.ts'],
  ['a collection takes what it wants for what was raised', 'test/store/table/collection.test.ts'],
  ['what may have been done is refused below the safe point', 'test/store/table/collection.test.ts'],
  // Two: between the refusal and its end another transaction, or a copy of the same prewrite, takes the row.
  ['a refused prewrite takes back what others have changed', 'test/store/table/refused-prewrites.test.ts'],
  ['a repeat leaves the locks their revision', 'test/store/table/refused-prewrites.test.ts'],
  // Two: a prewrite, and the removal of a record, that are late by a whole delete_range, and by another record.
  ['a delete_range leaves no revision', 'test/store/table/late-changes.test.ts'],
  ['a record is removed without a condition', 'test/store/table/late-changes.test.ts'],
  ['a removed pin leaves nothing', 'test/store/table/late-changes.test.ts'],
  // No row of a world is that large.
  ['a row takes Puts whatever its size', 'test/store/table/row-size.test.ts'],
  ['a collection does not count', 'test/store/table/row-size.test.ts'],
  // No client can make such a record.
  ['a record may have any length', 'test/store/table/long-records.test.ts'],
  // A log that goes on in the moment in which it is ended; a server that dies between a decision and its outcome.
  ['a log is ended without a condition', 'test/store/table/log/ended-logs.test.ts'],
  ['a log that is ended does not ask primaries', 'test/store/table/log/ended-logs.test.ts'],
  ['a log begins without its row', 'test/store/table/log/ended-logs.test.ts'],
  ['a reader notes the newest timestamp behind the list of logs', 'test/store/table/log/logs.test.ts'],
  ['a log goes though its last chunk tells of commits above', 'test/store/table/log/trimmed-logs.test.ts'],
  ['locks of secondaries do not count as records', 'test/store/table/log/table-change-log.test.ts'],
  // Of a delete_range that dies, of locks that others have left, and of a collection while resolved_ts is held back.
  ['a removal whose server failed is not finished', 'test/store/table/log/decisions.test.ts'],
  ['locks of other transactions count as records', 'test/store/table/log/table-change-log.test.ts'],
  ['a primary that was removed has committed nothing', 'test/store/table/log/decisions.test.ts'],
  ['locks are ended in the order of their keys', 'test/store/table/log/table-change-log.test.ts'],
  ['a collection passes resolved_ts', 'test/store/table/log/log-collection.test.ts'],
  ['another server holds no snapshot', 'test/gc/gc-worker.test.ts'],
  ['pins of other servers are not looked for', 'test/gc/gc-worker.test.ts'],
  // A commit that stands still between its validation and its timestamp.
  ['the end of a term is not compared with the commit_ts', 'test/leases/several-servers.test.ts'],
  // Nothing is wrong then, but servers take the same keys from each other, which costs calls.
  ['the primary does not go first', 'test/store/table/same-rows.test.ts'],
  ['a hint goes though its change is about to commit', 'test/store/table/hints.test.ts'],
  ['a run does not hide what it has not seen', 'test/store/table/hints.test.ts'],
  ['a run passes locks that its own write is going to hide', 'test/store/table/hints.test.ts'],
  // Nothing is wrong then: whoever decides again finds it done.
  ['a repeated change that is refused was not done', 'test/store/table/certain-change.test.ts'],
  // A change that a run has not seen, of a cell that is parked while the run commits.
  ['what a run leaves of a parked cell is not hinted at', 'test/store/table/hints.test.ts'],
])

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '300' },
    steps: { type: 'string' },
    jobs: { type: 'string', default: String(availableParallelism()) },
    only: { type: 'string', default: '' },
    shared: { type: 'boolean', default: false },
    texts: { type: 'boolean', default: false },
    exhaustive: { type: 'boolean', default: false },
  },
})

/** @returns the first seed that fails, and how; undefined when none does. */
function firstFailure(directory, store) {
  const main = `${directory}test/simulation/main.js`
  const args = [main, '--seeds', values.seeds, '--store', store, '--until-failure']
  if (values.steps !== undefined) args.push('--steps', values.steps)
  return new Promise((resolve) => {
    execFile(process.execPath, args, { encoding: 'latin1', timeout: 600_000 }, (error, stdout) => {
      if (error === null) return resolve(undefined)
      const [, seed, kinds] = /seed (\d+) {2}hash \w+ {2}FAILED: (.*)/.exec(stdout) ?? []
      resolve({ seed: seed ?? '?', how: [...new Set((kinds ?? error.signal ?? 'crash').split(', '))].join(', ') })
    })
  })
}

function* replacementsOf([, , ...texts]) {
  for (let at = 0; at < texts.length; at += 2) yield [texts[at], texts[at + 1]]
}

/** Puts one defect into a compiled copy. @returns what takes it out again. */
function mutate(directory, mutant) {
  const path = `${directory}src/${mutant[1]}.js`
  const sound = readFileSync(path, 'utf8')
  let source = sound
  for (const [text, replacement] of replacementsOf(mutant)) source = source.split(text).join(replacement)
  writeFileSync(path, source)
  return () => writeFileSync(path, sound)
}

const ALL = [...MUTANTS, ...SHARED]
const moved = ALL.flatMap((mutant) =>
  [...replacementsOf(mutant)].flatMap(([text]) => {
    const [what, file] = mutant
    const places = readFileSync(`${build}src/${file}.js`, 'utf8').split(text).length - 1
    return places === 1 ? [] : [`${file}: ${places} places for "${what}"`]
  }),
)
if (moved.length > 0) throw new Error(moved.join('\n'))
for (const what of FOUND_ELSEWHERE.keys())
  if (!ALL.some(([name]) => name === what)) throw new Error(`there is no defect "${what}"`)
if (values.texts) process.exit()

/** By the defect, the world of the exhaustive search that has to find it. */
async function worldsByDefect() {
  const { WORLDS } = await import(`${build}test/exhaustive/worlds.js`)
  const worldOf = new Map(
    Object.entries(WORLDS).flatMap(([name, { mutants = [] }]) => mutants.map((what) => [what, name])),
  )
  for (const what of worldOf.keys())
    if (!ALL.some(([name]) => name === what)) throw new Error(`there is no defect "${what}"`)
  return worldOf
}

/** @returns what the search of this world finds wrong, and how it came to it; undefined: nothing. */
function firstViolation(directory, world) {
  const began = performance.now()
  return new Promise((resolve) => {
    execFile(process.execPath, [`${directory}test/exhaustive/main.js`, '--world', world], (error, stdout) => {
      const [, how] = /^VIOLATION: (.*)$/m.exec(stdout) ?? []
      const seconds = ((performance.now() - began) / 1000).toFixed(1)
      resolve(error === null || how === undefined ? undefined : { seed: `${world}, ${seconds} s`, how, trace: stdout })
    })
  })
}

const worldOf = await worldsByDefect()
const wanted = (values.shared ? SHARED : ALL).filter(
  ([what]) => new RegExp(values.only).test(what) && (!values.exhaustive || worldOf.has(what)),
)
const rows = []
let next = 0
async function runJob(_, job) {
  const directory = `${build}mutant-${job}/`
  rmSync(directory, { recursive: true, force: true })
  for (const part of ['src', 'test']) cpSync(`${build}${part}`, `${directory}${part}`, { recursive: true })
  while (next < wanted.length) {
    const at = next++
    const mutant = wanted[at]
    const [what, file] = mutant
    const world = worldOf.get(what)
    const undo = mutate(directory, mutant)
    const found = values.exhaustive
      ? await firstViolation(directory, world)
      : await firstFailure(directory, SHARED.includes(mutant) ? 'shared' : 'leveldb')
    undo()
    const elsewhere = values.exhaustive ? undefined : (FOUND_ELSEWHERE.get(what) ?? (world && `the world ${world}`))
    const { seed, how } = found ?? { seed: `none of ${values.seeds}`, how: elsewhere ?? '' }
    rows[at] = `| ${what} | \`${file}.ts\` | ${seed} | ${how} |`
    console.error(found?.trace ?? rows[at])
    if (found === undefined && elsewhere === undefined) process.exitCode = 1
  }
  rmSync(directory, { recursive: true, force: true })
}
await Promise.all(Array.from({ length: Number(values.jobs) }, runJob))
console.log(`| defect | file | seeds | found as |\n| --- | --- | --- | --- |\n${rows.join('\n')}`)
