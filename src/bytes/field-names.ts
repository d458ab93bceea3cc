// Fields are snake_case on the wire and camelCase in TypeScript. All names come from the code, so the maps stay small.
const snakeNames = new Map<string, string>()
const camelNames = new Map<string, string>()

export function snakeCase(name: string): string {
  return cached(snakeNames, name, () => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`))
}

export function camelCase(name: string): string {
  return cached(camelNames, name, () => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()))
}

function cached(names: Map<string, string>, name: string, make: () => string): string {
  let made = names.get(name)
  if (made === undefined) {
    made = make()
    names.set(name, made)
  }
  return made
}
