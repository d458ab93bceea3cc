/** The global of viewer.js. */
declare const Scalar: { createApiReference(at: string, settings: object): void }

interface Description {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Call>>>>
}

interface Call {
  readonly operationId: string
  readonly tags: readonly [string]
  description: string
  readonly parameters: readonly { readonly required?: boolean; example?: unknown }[]
  readonly requestBody?: { content: Content }
  readonly responses: Readonly<Record<string, { readonly content?: Content }>>
}

/** By media type. */
type Content = Record<string, object>

/** With curl's scheme by default. A proxy may serve this server below a path. */
const server = new URL('.', location.href).href.replace(/\/$/, '')
const answer = await fetch('openapi.json')
const description = JSON.parse(
  (await answer.text()).replaceAll('localhost:7400', server.replace(/^http:\/\//, '')),
) as Description
const calls = Object.values(description.paths).flatMap((methods) => Object.values(methods))

/** By `operationId`, as descriptions name calls, and links from elsewhere. */
const anchors = new Map(
  calls.map(({ operationId, tags: [tag] }) => [operationId, `#tag/${slugOf(tag)}/${operationId}`]),
)
for (const call of calls) {
  call.description = call.description.replace(/\]\(#(\w+)\)/g, (_, id: string) => `](${anchors.get(id) ?? ''})`)
  const { parameters, requestBody, responses } = call
  // What the viewer sends at first: an example of each parameter, those that exclude each other too; and accepting all that there is.
  for (const parameter of parameters) if (!parameter.required) delete parameter.example
  const answer = responses['200']?.content
  if (answer?.['application/octet-stream']) delete answer['text/event-stream']
  // It asks for a file of bytes, where any type will do, and for text there is a field.
  if (requestBody?.content['*/*'])
    requestBody.content = { 'text/plain': requestBody.content['application/octet-stream'] ?? {} }
}
const anchor = anchors.get(location.hash.slice(1))
if (anchor !== undefined) history.replaceState(null, '', anchor)

Scalar.createApiReference('#app', {
  content: description,
  generateTagSlug: ({ name }: { readonly name: string }) => slugOf(name),
  generateOperationSlug: ({ operationId }: Call) => operationId,
  servers: [{ url: server, description: 'This server' }],
  authentication: { preferredSecurityScheme: 'token' },
  hiddenClients: { shell: ['httpie', 'wget'] },
  // The page's own look.
  theme: 'none',
  withDefaultFonts: false,
  hideDarkModeToggle: true,
  documentDownloadType: 'none',
  // Nothing of other origins, and nothing that leads there.
  telemetry: false,
  agent: { disabled: true },
  mcp: { disabled: true },
  hideClientButton: true,
  showDeveloperTools: 'never',
})

function slugOf(tag: string): string {
  return tag.toLowerCase().replaceAll(' ', '-')
}
