import { expect, test } from 'vitest'
import { readConfig } from '../../src/server/config.js'

test('the URL for other servers names a place, and no one who may enter', () => {
  const advertised = (url: string) => readConfig(['--advertise', url], {}).advertise
  expect(advertised('https://a.example/perkv/')).toBe('https://a.example/perkv')
  for (const url of ['http://me@a.example', 'http://:secret@a.example', 'http://a.example?x=1', 'http://a.example#x'])
    expect(() => advertised(url)).toThrow('--advertise must be an http or https URL')
})

test('servers of a table are refused addresses at which every machine reaches itself', () => {
  const open = ['--insecure', '--host']
  const shared = ['--store', 'bigtable://p/i/t', ...open]
  for (const host of ['0.0.0.0', '::', '[::]', '0:0:0:0:0:0:0:0']) {
    expect(() => readConfig([...shared, host], {})).toThrow(/^--host .* give --advertise/)
    expect(readConfig([...shared, host, '--advertise', 'http://10.0.0.1:7400'], {}).advertise).toBeDefined()
    expect(readConfig([...open, host], {}).advertise).toBeUndefined() // Nobody shares its store.
  }
  for (const url of ['http://0.0.0.0:7400', 'http://[::]:7400', 'https://[0:0::0]'])
    expect(() => readConfig([...shared, '10.0.0.1', '--advertise', url], {})).toThrow(
      /^--advertise .* give --advertise/,
    )
})
