/**
 * Rolls the declarations that tsc wrote up into one file for each entry of the package: what its exports reach, and nothing of what only the
 * inside of PerKV sees. Other packages and Node's own types are refused, so the types of a program that has PerKV need nothing else.
 * Bundlers of declarations need TypeScript's old compiler or a newer Node; rolldown's parser is here already.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { parseSync } from 'rolldown/utils'

/** `declarationDir` of tsconfig.build.json. */
const EMITTED = 'dist/.declarations'

/**
 * Names of platforms that the public types have. They mean what they do where the program is compiled, by `lib` or by its platform's
 * types; one that has neither gets as much of them as PerKV needs.
 */
const PLATFORM = {
  AbortSignal:
    'typeof globalThis extends { AbortSignal: { prototype: infer Known } } ? Known : { readonly aborted: boolean }',
  RequestInit:
    'typeof globalThis extends { fetch: (url: string, init?: infer Known) => unknown } ? NonNullable<Known> : object',
  Response: 'typeof globalThis extends { Response: { prototype: infer Known } } ? Known : object',
}

/** Packages that an entry's types name. Who imports that entry has them. */
const PACKAGES = new Set(['abstract-level'])

/** @typedef {{ module: Module, name: string, nodes: { from: number, to: number, tree: object, comment: string }[], package?: string }} Declared */
/** @typedef {{ file: string, text: string, head: string, declared: Map<string, Declared>, bound: Map<string, [string, string]>, stars: string[], exported: Map<string, { name: string, isType: boolean, from?: string }> }} Module */

/** @type {Map<string, Module>} */
const modules = new Map()

function refuse(file, what) {
  throw new Error(`${file}: ${what} cannot be in the types of the package`)
}

/** @returns {Module} */
function moduleAt(file) {
  const known = modules.get(file)
  if (known !== undefined) return known
  const text = readFileSync(file, 'utf8')
  const { program, errors } = parseSync(file, text)
  if (errors.length > 0) throw new Error(`${file}: ${errors[0].message}`)
  const module = { file, text, head: '', declared: new Map(), bound: new Map(), stars: [], exported: new Map() }
  modules.set(file, module)
  const fileOf = ({ value }) => {
    if (!value.startsWith('.')) return value // Refused where it is reached.
    return join(dirname(file), value.replace(/\.js$/, '.d.ts'))
  }
  let end = 0
  for (const statement of program.body) {
    const comment = /\/\*\*(?:(?!\*\/)[\s\S])*\*\/\s*$/.exec(text.slice(end, statement.start))?.[0].trim() ?? ''
    if (end === 0) module.head = comment
    end = statement.end
    if (statement.type === 'ImportDeclaration') {
      for (const { local, imported } of statement.specifiers)
        module.bound.set(local.name, [fileOf(statement.source), imported?.name ?? '*'])
    } else if (statement.type === 'ExportAllDeclaration') module.stars.push(fileOf(statement.source))
    else if (statement.type === 'ExportNamedDeclaration' && !statement.declaration) {
      for (const { local, exported, exportKind } of statement.specifiers) {
        const isType = statement.exportKind === 'type' || exportKind === 'type'
        const from = statement.source ? { from: fileOf(statement.source) } : {}
        module.exported.set(exported.name, { name: local.name, isType, ...from })
      }
    } else {
      const tree = statement.declaration ?? statement
      for (const { name } of tree.declarations?.map(({ id }) => id) ?? [tree.id]) {
        const declared = module.declared.get(name) ?? { module, name, nodes: [] }
        declared.nodes.push({ from: tree.start, to: statement.end, tree, comment })
        module.declared.set(name, declared)
        if (tree !== statement) module.exported.set(name, { name, isType: /^TS(Interface|TypeAlias)/.test(tree.type) })
      }
    }
  }
  return module
}

/** @returns {Declared | undefined} what a name means in a module; undefined for a name of the language. */
function meaningOf(module, name) {
  const own = module.declared.get(name)
  if (own !== undefined) return own
  const [file, imported] = module.bound.get(name) ?? []
  if (file === undefined) return undefined
  if (PACKAGES.has(file) && imported !== '*') return ofPackage(file, imported)
  if (!file.endsWith('.d.ts') || imported === '*') refuse(module.file, `${name} of ${file}`)
  return exportOf(moduleAt(file), imported)?.declared ?? refuse(module.file, name)
}

/** @type {Map<string, Declared>} */
const packageExports = new Map()

function ofPackage(file, name) {
  const declared = packageExports.get(`${file} ${name}`) ?? { package: file, name, nodes: [] }
  packageExports.set(`${file} ${name}`, declared)
  return declared
}

/** @returns {{ declared: Declared, isType: boolean } | undefined} */
function exportOf(module, name) {
  const entry = module.exported.get(name)
  if (entry === undefined) {
    for (const star of module.stars) {
      const found = exportOf(moduleAt(star), name)
      if (found !== undefined) return found
    }
    return undefined
  }
  if (entry.from === undefined) return { declared: meaningOf(module, entry.name), isType: entry.isType }
  const found = exportOf(moduleAt(entry.from), entry.name) ?? refuse(module.file, name)
  return { declared: found.declared, isType: found.isType || entry.isType }
}

/** Properties of a node that hold the name of a member or of a parameter, which refers to nothing. */
const isOwnName = (node, property) =>
  (property === 'key' && !node.computed) ||
  (property === 'property' && !node.computed) ||
  (property === 'right' && node.type === 'TSQualifiedName') ||
  (property === 'name' && node.type === 'TSTypeParameter') ||
  property === 'label' ||
  property === 'parameterName'

/** Calls back with each identifier that refers to something outside of its declaration, or is its name. */
function eachName(node, onName, file) {
  if (node.type === 'TSImportType') refuse(file, 'import()')
  if (node.type === 'Identifier') onName(node)
  for (const [property, child] of Object.entries(node)) {
    if (isOwnName(node, property)) continue
    for (const one of Array.isArray(child) ? child : [child]) {
      if (typeof one?.type !== 'string') continue
      if (property === 'params' && one.type === 'Identifier') {
        if (one.typeAnnotation) eachName(one.typeAnnotation, onName, file)
      } else eachName(one, onName, file)
    }
  }
}

/**
 * @param {Map<Declared, string>} elsewhere what another entry exports, which this one has from there.
 * @returns the text, and what it exports.
 */
function rolledUp(entry, elsewhere, elsewhereFrom) {
  const module = moduleAt(join(EMITTED, entry))
  const exported = new Map()
  for (const name of module.exported.keys()) exported.set(name, exportOf(module, name))

  /** @type {Map<Declared, { start: number, end: number, to: Declared }[]>} */
  const reached = new Map()
  const imported = new Set()
  const globals = new Set()
  const reach = (declared) => {
    if (elsewhere.has(declared)) return void imported.add(declared)
    if (reached.has(declared)) return
    const references = []
    reached.set(declared, references)
    const onName = ({ name, start }) => {
      const to = meaningOf(declared.module, name)
      if (to === undefined) {
        if (name === 'Buffer' || name === 'NodeJS') refuse(declared.module.file, name)
        globals.add(name)
      } else references.push({ start, end: start + name.length, to })
    }
    for (const { tree } of declared.nodes) eachName(tree, onName, declared.module.file)
    references.sort((a, b) => a.start - b.start)
    for (const { to } of references) reach(to)
  }
  for (const { declared } of exported.values()) reach(declared)

  const taken = new Set(globals)
  const names = new Map()
  const give = (declared, wanted) => {
    if (names.has(declared)) return
    let name = wanted
    for (let n = 1; taken.has(name); n++) name = `${wanted}_${n}`
    taken.add(name)
    names.set(declared, name)
  }
  for (const declared of imported) give(declared, elsewhere.get(declared))
  for (const [name, { declared }] of exported) give(declared, name)
  for (const declared of reached.keys()) give(declared, declared.name)

  const parts = [module.head]
  const list = (pairs) => pairs.map(([of, as]) => (of === as ? of : `${of} as ${as}`)).join(', ')
  for (const file of PACKAGES) {
    const pairs = [...reached.keys()].filter((declared) => declared.package === file)
    if (pairs.length > 0)
      parts.push(
        `import type { ${list(pairs.map((declared) => [declared.name, names.get(declared)]))} } from '${file}';`,
      )
  }
  if (imported.size > 0) {
    const pairs = [...imported].map((declared) => [elsewhere.get(declared), names.get(declared)])
    parts.push(`import type { ${list(pairs)} } from '${elsewhereFrom}';`)
  }
  for (const [name, type] of Object.entries(PLATFORM)) if (globals.has(name)) parts.push(`type ${name} = ${type};`)
  for (const [declared, references] of reached)
    for (const { from, to, comment } of declared.nodes) {
      let text = ''
      let at = from
      for (const reference of references.filter(({ start }) => start >= from && start < to)) {
        text += declared.module.text.slice(at, reference.start) + names.get(reference.to)
        at = reference.end
      }
      text += declared.module.text.slice(at, to)
      parts.push(comment === '' ? text : `${comment}\n${text}`)
    }
  for (const star of module.stars) parts.push(`export * from '${starOf(module, star)}';`)
  const pairs = (isType) =>
    [...exported]
      .filter(([, found]) => found.isType === isType)
      .map(([name, found]) => [names.get(found.declared), name])
  parts.push(`export { ${list(pairs(false))} };`, `export type { ${list(pairs(true))} };`)
  return {
    text: `${parts.join('\n')}\n`,
    exported: new Map([...exported].map(([name, found]) => [found.declared, name])),
  }
}

function starOf(module, star) {
  return `./${relative(dirname(module.file), star).replace(/\.d\.ts$/, '.js')}`
}

function write(entry, { text }) {
  const path = resolve('dist', entry)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, text)
}

const client = rolledUp('client/index.d.ts', new Map(), '')
write('client/index.d.ts', client)
write('index.d.ts', rolledUp('index.d.ts', client.exported, './client/index.js'))
for (const entry of ['keyv', 'level', 'rate-limit', 'session'])
  write(`${entry}/index.d.ts`, rolledUp(`${entry}/index.d.ts`, client.exported, '../client/index.js'))
rmSync(EMITTED, { recursive: true })
