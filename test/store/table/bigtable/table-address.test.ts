import { expect, test } from 'vitest'
import { BigtableSetupError } from '../../../../src/store/table/bigtable/bigtable-setup-error.js'
import { parseTableAddress, printTableAddress, tableName } from '../../../../src/store/table/bigtable/table-address.js'

test('addresses', () => {
  const plain = { project: 'my-project', instance: 'prod-1', table: 'Perkv_2.a' }
  expect(parseTableAddress('bigtable://my-project/prod-1/Perkv_2.a')).toEqual(plain)
  expect(tableName(plain)).toBe('projects/my-project/instances/prod-1/tables/Perkv_2.a')
  const full = { project: 'example.com:it', instance: 'i', table: 't', appProfile: 'one-cluster' }
  expect(parseTableAddress('bigtable://example.com:it/i/t?app_profile=one-cluster')).toEqual(full)
  for (const address of [plain, full]) expect(parseTableAddress(printTableAddress(address))).toEqual(address)
})

test.each([
  ['', 'it does not begin with bigtable://'],
  ['leveldb://p/i/t', 'it does not begin with bigtable://'],
  ['bigtable://p/i', 'it has 2 names where three are expected'],
  ['bigtable://p/i/t/', 'it has 4 names where three are expected'],
  ['bigtable:///i/t', '"" is no id of a project'],
  ['bigtable://P/i/t', '"P" is no id of a project'],
  ['bigtable://p//t', '"" is no id of an instance'],
  ['bigtable://p/i/t t', '"t t" is no id of a table'],
  ['bigtable://p/i/', '"" is no id of a table'],
  ['bigtable://p/i/t?profile=a', 'there is no parameter "profile"'],
  ['bigtable://p/i/t?app_profile=', '"" is no id of an app profile'],
  ['bigtable://p/i/t?', 'there is no app_profile after the question mark'],
  ['bigtable://p/i/t?app_profile=a&app_profile=b', 'app_profile is there more than once'],
])('%j is refused', (text, why) => {
  const refuse = (): unknown => parseTableAddress(text)
  expect(refuse).toThrow(BigtableSetupError)
  expect(refuse).toThrow(
    `${JSON.stringify(text)} is no address of a table: ${why}; expected bigtable://PROJECT/INSTANCE/TABLE[?app_profile=ID]`,
  )
})
