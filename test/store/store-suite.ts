import { describe, expect } from 'vitest'
import { accessCases } from './suite/access.js'
import { answerCases } from './suite/answers.js'
import { changeHistoryCases } from './suite/change-histories.js'
import { changeCases } from './suite/changes.js'
import { collectionCases } from './suite/collection.js'
import { consumerCases } from './suite/consumers.js'
import { Contract, type StoreKind } from './suite/contract.js'
import { exclusiveCases } from './suite/exclusive.js'
import { expiredVersionCases } from './suite/expired-versions.js'
import { expiryCases } from './suite/expiry.js'
import { hintedCellCases } from './suite/hinted-cells.js'
import { inspectionCases } from './suite/inspection.js'
import { lockCases } from './suite/locks.js'
import { markedCellCases } from './suite/marked-cells.js'
import { pessimisticCases } from './suite/pessimistic.js'
import { readCases } from './suite/reads.js'
import { recordCases } from './suite/records.js'
import { restartCases } from './suite/restarts.js'
import { restoreCases } from './suite/restore.js'
import { scanCases } from './suite/scans.js'
import { timestampCases } from './suite/timestamps.js'
import { transactionCases } from './suite/transactions.js'
import { validationCases } from './suite/validation.js'

const CASES: Readonly<Record<string, (contract: Contract) => void>> = {
  transactions: transactionCases,
  reads: readCases,
  scans: scanCases,
  locks: lockCases,
  'pessimistic locks': pessimisticCases,
  validation: validationCases,
  inspection: inspectionCases,
  collection: (contract) => collectionCases(contract.all('collection')),
  expiry: expiryCases,
  timestamps: timestampCases,
  'records of the server': recordCases,
  'cells of observers': (contract) => markedCellCases(contract.all('promptLog')),
  'cells of observers that several servers share': (contract) => hintedCellCases(contract.all('sharedCells')),
  changes: changeCases,
  'changes in random histories': (contract) => changeHistoryCases(contract.all('promptLog')),
  'consumers of changes': (contract) => consumerCases(contract.all('promptLog')),
  'expired versions, for feeds and observers': (contract) => expiredVersionCases(contract.all('promptLog')),
  exclusive: exclusiveCases,
  'callers that reach some keys': accessCases,
  answers: answerCases,
  restore: restoreCases,
  restarts: restartCases,
}

/**
 * The contract of a store: `Store` in `src/store/store.ts`, and the Percolator calls. Cases say nothing of how a store does
 * it. They expect no more than the store's traits promise, and report as skipped what does not apply.
 */
export function storeSuite(name: string, kind: StoreKind): void {
  describe(`the contract of stores: ${name}`, () => {
    const contract = new Contract(kind)
    contract.test('the store says what it is held to', async () => {
      expect((await contract.open()).traits).toEqual(kind.traits)
    })
    for (const [title, cases] of Object.entries(CASES)) describe(title, () => cases(contract))
  })
}
