import { startEmulator } from './emulator.mjs'

/** One emulator for all files, which they find by BIGTABLE_EMULATOR_HOST. */
export default async function globalSetup(): Promise<() => Promise<void>> {
  const emulator = await startEmulator()
  process.env['BIGTABLE_EMULATOR_HOST'] = emulator.host
  return emulator.stop
}
