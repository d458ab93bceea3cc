import {
  type Context,
  type DiagLogFunction,
  DiagLogLevel,
  diag,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  type TextMapGetter,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import { ExportResultCode, W3CTraceContextPropagator } from '@opentelemetry/core'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
  serviceInstanceIdDetector,
} from '@opentelemetry/resources'
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base'
import { sleep } from '../event-loop/sleep.js'
import type { RequestTraces, TracedRequest } from '../http/connections/traced-requests.js'
import type { Logger } from '../logger.js'
import { attributesOf, partsOf, spanName } from './request-spans.js'

export interface OtlpOptions {
  /** URL that spans are posted to. */
  readonly url: string
  /** Version of the server. */
  readonly version: string
  readonly scheme: 'http' | 'https'
  readonly log: Logger
}

/** The same fault of a collector is logged at most this often. */
const LOG_MS = 60_000
/** At its stop the server waits this long for the collector to take the last spans. */
const FLUSH_MS_MAX = 1000
/** Concurrent requests to the collector. More than one runs only when the collector does not answer for 30 seconds. */
const EXPORTS_MAX = 4
/** Longer headers are ignored. A `traceparent` of the version in use has 55 characters. */
const TRACEPARENT_LENGTH_MAX = 256
const MESSAGE_LENGTH_MAX = 200

/**
 * Sends a span per request to a collector, by OpenTelemetry's SDK: it samples, batches, holds at most `OTEL_BSP_MAX_QUEUE_SIZE`
 * spans and drops others, and reads the rest of `OTEL_*` from the environment of the process.
 *
 * Spans are made when their request has ended. PerKV calls no other service, so no span has to exist earlier.
 */
export class OtlpTraces implements RequestTraces {
  readonly #provider: BasicTracerProvider
  readonly #tracer: Tracer
  readonly #scheme: 'http' | 'https'

  constructor({ url, version, scheme, log }: OtlpOptions) {
    logDiagnostics(log)
    const resource = defaultResource()
      .merge(resourceFromAttributes({ 'service.name': 'perkv', 'service.version': version }))
      .merge(detectResources({ detectors: [serviceInstanceIdDetector, envDetector] }))
    const exporter = reporting(new OTLPTraceExporter({ url, concurrencyLimit: EXPORTS_MAX }), log)
    this.#provider = new BasicTracerProvider({ resource, spanProcessors: [new BatchSpanProcessor(exporter)] })
    this.#tracer = this.#provider.getTracer('perkv', version)
    this.#scheme = scheme
  }

  ended(request: TracedRequest): void {
    const toEpochMs = Date.now() - performance.now()
    const { arrivedMs, endedMs, status = 0 } = request
    const options = { kind: SpanKind.SERVER, startTime: arrivedMs + toEpochMs }
    const span = this.#tracer.startSpan(spanName(request), options, parentOf(request))
    if (!span.isRecording()) return
    span.setAttributes(attributesOf(request, this.#scheme))
    if (status >= 500) span.setStatus({ code: SpanStatusCode.ERROR })
    const inside = trace.setSpan(ROOT_CONTEXT, span)
    for (const { name, beganMs, endedMs } of partsOf(request))
      this.#tracer.startSpan(name, { startTime: beganMs + toEpochMs }, inside).end(endedMs + toEpochMs)
    span.end(endedMs + toEpochMs)
  }

  /** Sends the remaining spans, for at most `FLUSH_MS_MAX`. */
  async close(): Promise<void> {
    await Promise.race([this.#provider.shutdown().catch(() => {}), sleep(FLUSH_MS_MAX)])
  }
}

const propagator = new W3CTraceContextPropagator()

/** `tracestate` is left out: clients may write anything into it, and spans contain no text of clients. */
const HEADERS: TextMapGetter<TracedRequest> = {
  keys: () => propagator.fields(),
  get: (request, name) => (name === 'traceparent' ? request.traceparent : undefined),
}

/** A malformed header counts as none. */
function parentOf(request: TracedRequest): Context {
  const { traceparent } = request
  if (traceparent === undefined || traceparent.length > TRACEPARENT_LENGTH_MAX) return ROOT_CONTEXT
  return propagator.extract(ROOT_CONTEXT, request, HEADERS)
}

/** Logs the spans that an exporter could not send, instead of the SDK. */
function reporting(exporter: SpanExporter, log: Logger): SpanExporter {
  const warn = rarely((message) => log.warn(message))
  return {
    export: (spans, done) =>
      exporter.export(spans, ({ code, error }) => {
        if (code === ExportResultCode.FAILED)
          warn(`${spans.length} spans could not be sent to the collector: ${messageOf(error)}`)
        done({ code: ExportResultCode.SUCCESS })
      }),
    shutdown: () => exporter.shutdown(),
    forceFlush: async () => exporter.forceFlush?.(),
  }
}

/** Logs the SDK's own messages: variables that it cannot use, and spans that it has dropped. */
function logDiagnostics(log: Logger): void {
  const warn = rarely((message) => log.warn(`OpenTelemetry: ${message}`))
  const ignore: DiagLogFunction = () => {}
  const logger = { error: warn, warn, info: ignore, debug: ignore, verbose: ignore }
  diag.setLogger(logger, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true })
}

function rarely(write: (message: string) => void): (message: string) => void {
  let nextMs = 0
  return (message) => {
    const nowMs = performance.now()
    if (nowMs < nextMs) return
    nextMs = nowMs + LOG_MS
    write(message.slice(0, MESSAGE_LENGTH_MAX))
  }
}

/** Refused connections to several addresses are an AggregateError without a message. */
function messageOf(error: Error | undefined): string {
  const { message, code } = (error ?? {}) as { readonly message?: string; readonly code?: unknown }
  return [message, code].filter(Boolean).join(' ') || 'no reason given'
}
