import { runSliced } from '../../../event-loop/time-slicer.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import { crc32c } from '../files/crc32c.js'
import { recordKind, recordName } from '../records/record-name.js'
import type { Engine, EngineOp, EngineReader } from './engine.js'

const SEAL_BYTES = 4

export function seal(key: Buffer, value: Buffer): Buffer {
  const sealed = Buffer.allocUnsafe(value.length + SEAL_BYTES)
  sealed.set(value)
  sealed.writeUInt32BE(sealOf(key, value, value.length), value.length)
  return sealed
}

/** @returns the value without its seal, not copied; undefined when the seal does not match. */
export function opened(key: Buffer, sealed: Buffer): Buffer | undefined {
  const length = sealed.length - SEAL_BYTES
  if (length < 0 || sealed.readUInt32BE(length) !== sealOf(key, sealed, length)) return undefined
  return sealed.subarray(0, length)
}

function sealOf(key: Buffer, value: Buffer, length: number): number {
  return crc32c(value, 0, length, crc32c(key))
}

/** @throws CorruptRecord @internal */
export function unseal(key: Buffer, sealed: Buffer): Buffer {
  const value = opened(key, sealed)
  if (value === undefined)
    throw new CorruptRecord(`${recordName(key)} fails its checksum`, `${recordKind(key)} fails its checksum`)
  return value
}

/**
 * An engine that seals every value. LevelDB itself reads without verifying the checksums of its blocks, and a compaction puts new
 * checksums on damaged data. Reads throw CorruptRecord when a seal does not match.
 */
export function sealedEngine(engine: Engine): Engine {
  return {
    ...sealedReader(engine),
    getSync(key) {
      const sealed = engine.getSync(key)
      return sealed && unseal(key, sealed)
    },
    write(ops, sync) {
      const sealed = runSliced(sealedOps(ops))
      return sealed instanceof Promise ? sealed.then((all) => engine.write(all, sync)) : engine.write(sealed, sync)
    },
    snapshot() {
      const snapshot = engine.snapshot()
      return { ...sealedReader(snapshot), close: () => snapshot.close() }
    },
    compactRange: (start, end) => engine.compactRange(start, end),
    approximateSize: (start, end) => engine.approximateSize(start, end),
    levels: () => engine.levels?.() ?? [],
    requireRoom: () => engine.requireRoom(),
    reopen: () => engine.reopen(),
    close: () => engine.close(),
  }
}

/** Bytes between two yields, whose CRC takes a millisecond or two. */
const SEALED_AT_A_TIME = 2 * 1024 * 1024

function* sealedOps(ops: readonly EngineOp[]): Generator<void, EngineOp[], void> {
  const sealed: EngineOp[] = []
  let bytes = 0
  for (const op of ops) {
    sealed.push(sealedOp(op))
    bytes += OP_BYTES + (op.type === 'put' ? op.value.length : 0)
    if (bytes < SEALED_AT_A_TIME) continue
    bytes = 0
    yield
  }
  return sealed
}

/** Fixed cost of sealing one op, as the number of bytes whose CRC takes as long. */
const OP_BYTES = 1024

export function sealedOp(op: EngineOp): EngineOp {
  return op.type === 'put' ? { type: 'put', key: op.key, value: seal(op.key, op.value) } : op
}

function sealedReader(reader: EngineReader): EngineReader {
  return {
    async get(key) {
      const sealed = await reader.get(key)
      return sealed && unseal(key, sealed)
    },
    async getMany(keys) {
      const values = await reader.getMany(keys)
      return values.map((sealed, i) => sealed && unseal(keys[i] as Buffer, sealed))
    },
    iterator(range) {
      const iterator = reader.iterator(range)
      if (range.values === false) return iterator
      return {
        async nextv(size) {
          const entries = await iterator.nextv(size)
          for (const entry of entries) entry[1] = unseal(entry[0], entry[1])
          return entries
        },
        close: () => iterator.close(),
      }
    },
  }
}
