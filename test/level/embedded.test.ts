import { afterAll } from 'vitest'
import { open } from '../../src/embedded/open.js'
import { levelSuite } from './suite.js'

// The suite asks for a database while it names its tests.
const db = await open(':memory:')
afterAll(() => db.close())

levelSuite(db)
