import type { JSX } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { columnsOf, plansFor, type Reading } from '../readings/reading.js'
import { Chart } from './chart.js'
import { LoadPanels } from './load-panels.js'
import { Empty, Failure } from './parts.js'
import { takeReading } from './readings.js'
import { useSession } from './session.js'
import { useLoaded } from './use-loaded.js'

const EVERY_MS = 1000
const READINGS_KEPT = 180
/** Seconds that a chart spans at first. */
const SPAN_MIN = 30

export function LiveView(): JSX.Element {
  const { server, access } = useSession()
  const [readings, setReadings] = useState<readonly Reading[]>([])
  const { value, error } = useLoaded(
    (signal) => takeReading(server, readings.at(-1)?.metrics !== undefined || readings.length === 0, signal),
    [server],
    EVERY_MS,
  )
  useEffect(() => setReadings([]), [server])
  useEffect(() => {
    if (value !== undefined) setReadings((before) => [...before, value].slice(-READINGS_KEPT))
  }, [value])
  const plans = useMemo(() => (value === undefined ? [] : plansFor(value)), [value])
  return (
    <>
      <header class="view-head">
        <h1>Live</h1>
        <p class="lead">
          One reading per second, from <code>/metrics</code> and <code>/v1/status</code>.
          {value !== undefined &&
            value.metrics === undefined &&
            (access.prefixes === undefined
              ? ' This server has no /metrics: rates and latencies are not shown.'
              : ' Rates, latencies and the machine are for tokens that reach every key.')}
        </p>
      </header>
      <Failure error={error} />
      {plans.length === 0 && error === undefined && <Empty>Loading…</Empty>}
      <div class="charts">
        {plans.map((plan) => (
          <Chart
            key={plan.title}
            title={plan.title}
            unit={plan.unit}
            labels={plan.lines.map(({ label }) => label)}
            columns={columnsOf(plan, readings)}
            span={Math.max(SPAN_MIN, (readings.at(-1)?.at ?? 0) - (readings[0]?.at ?? 0))}
          />
        ))}
      </div>
      <LoadPanels />
    </>
  )
}
