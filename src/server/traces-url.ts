import { type Given, UsageError } from './flags.js'

/** Path for traces below a collector's endpoint. */
const TRACES_PATH = 'v1/traces'
/** A collector on this machine, as the specification has it. */
const ENDPOINT_DEFAULT = 'http://localhost:4318'

/**
 * The URL that spans are posted to: from the flag, or from the standard variables of OpenTelemetry. These may be set for every
 * program of a machine, so `OTEL_SDK_DISABLED` and `OTEL_TRACES_EXPORTER` without `otlp` switch off traces that variables ask
 * for, but not those that the flag asks for.
 * @returns undefined when nothing asks for traces.
 * @throws UsageError when it is no http or https URL.
 * @see https://opentelemetry.io/docs/specs/otel/protocol/exporter/
 */
export function tracesUrl(flag: Given | undefined, env: NodeJS.ProcessEnv): string | undefined {
  if (flag !== undefined) return below(flag)
  const given = (name: string): Given | undefined => {
    const text = env[name]?.trim()
    return text ? { text, from: name } : undefined // The specification takes an empty variable for an unset one.
  }
  if (given('OTEL_SDK_DISABLED')?.text.toLowerCase() === 'true') return undefined
  const exporters = given('OTEL_TRACES_EXPORTER')?.text.split(',')
  if (exporters?.every((name) => name.trim() !== 'otlp')) return undefined
  const own = given('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT')
  if (own !== undefined) return urlOf(own).href
  const endpoint = given('OTEL_EXPORTER_OTLP_ENDPOINT')
  if (endpoint !== undefined) return below(endpoint)
  return exporters === undefined ? undefined : below({ text: ENDPOINT_DEFAULT, from: '' })
}

function below(endpoint: Given): string {
  const url = urlOf(endpoint)
  url.pathname = `${url.pathname.replace(/\/$/, '')}/${TRACES_PATH}`
  return url.href
}

function urlOf({ text, from }: Given): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url !== undefined && ['http:', 'https:'].includes(url.protocol)) return url
  throw new UsageError(`${from} must be an http or https URL, such as http://127.0.0.1:4318`)
}
