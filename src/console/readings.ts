import { parseMetrics } from '../readings/metrics-text.js'
import type { Reading } from '../readings/reading.js'
import type { Status } from './answers.js'
import { Refused, type Server } from './server.js'

export async function takeReading(server: Server, hasMetrics: boolean, signal: AbortSignal): Promise<Reading<Status>> {
  const begun = performance.now()
  const status = await server.get<Status>('/v1/status', signal)
  const tripMs = performance.now() - begun
  const text = hasMetrics ? await metricsOf(server, signal) : undefined
  return { at: Date.now() / 1000, status, metrics: text === undefined ? undefined : parseMetrics(text), tripMs }
}

async function metricsOf(server: Server, signal: AbortSignal): Promise<string | undefined> {
  try {
    return await server.text('/metrics', signal)
  } catch (error) {
    if (error instanceof Refused) return undefined
    throw error
  }
}
