/** Parts of prom-client, which has no types for them. The whole loads OpenTelemetry, for which a scrape would wait some 70 ms. */
declare module 'prom-client/lib/registry.js' {
  import type { Registry } from 'prom-client'

  interface WrittenMetric {
    readonly name: string
    readonly help: string
    readonly type: string
    readonly values: readonly object[]
  }
  const Class: {
    new (): Pick<Registry, 'metrics' | 'contentType'> & {
      getMetricsAsString(metric: { get(): Promise<WrittenMetric> }): Promise<string>
    }
  }
  export default Class
}

declare module 'prom-client/lib/metrics/*' {
  const collect: (registry: object) => void
  export default collect
}
