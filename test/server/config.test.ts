import { expect, test } from 'vitest'
import { readConfig } from '../../src/server/config.js'

test('the URL for other servers names a place, and no one who may enter', () => {
  const advertised = (url: string) => readConfig(['--advertise', url], {}).advertise
  expect(advertised('https://a.example/perkv/')).toBe('https://a.example/perkv')
  for (const url of ['http://me@a.example', 'http://:secret@a.example', 'http://a.example?x=1', 'http://a.example#x'])
    expect(() => advertised(url)).toThrow('--advertise must be an http or https URL')
})
