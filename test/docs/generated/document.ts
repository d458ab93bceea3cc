import type { Json } from '../../../src/http/openapi/schema-writer.js'

interface Media {
  readonly schema?: Json
  readonly examples?: Readonly<Record<string, { readonly summary: string; readonly value: unknown }>>
}

export interface Answer {
  readonly $ref?: string
  readonly description: string
  readonly headers?: Readonly<Record<string, { readonly description?: string }>>
  readonly content?: Readonly<Record<string, Media>>
}

interface Operation {
  readonly operationId: string
  readonly tags: readonly [string]
  readonly summary: string
  readonly description: string
  readonly parameters: readonly {
    readonly name: string
    readonly in: string
    readonly description: string
    readonly schema: Json
    readonly required?: boolean
  }[]
  readonly requestBody?: {
    readonly description?: string
    readonly required: boolean
    readonly content: Readonly<Record<string, Media>>
  }
  readonly responses: Readonly<Record<string, Answer>>
  readonly 'x-codeSamples'?: readonly { readonly label: string; readonly source: string }[]
}

/** The parts of `openApiDocument` that pages read. */
export interface Document {
  readonly info: { readonly version: string; readonly description: string }
  readonly tags: readonly { readonly name: string; readonly description: string }[]
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: {
    readonly schemas: Readonly<Record<string, Json>>
    readonly responses: Readonly<Record<string, Answer>>
  }
}

export interface Call extends Operation {
  readonly method: string
  readonly path: string
}

export function areasOf({ paths, tags }: Document): { name: string; description: string; calls: Call[] }[] {
  const calls = Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]): Call => ({ ...operation, method: method.toUpperCase(), path })),
  )
  return tags.map((tag) => ({ ...tag, calls: calls.filter((call) => call.tags[0] === tag.name) }))
}
