interface Validate {
  (value: unknown): unknown
  errors?: unknown
}

interface Compiler {
  compile(schema: unknown, isMeta?: boolean): Validate
}

/**
 * Each schema is compiled when it has its first value to check: all of them at the start would be most of what starting
 * costs.
 */
export function compileLate(ajv: Compiler): void {
  const compile = ajv.compile.bind(ajv)
  ajv.compile = (...given) => {
    let compiled: Validate | undefined
    const validate: Validate = (value) => {
      compiled ??= compile(...given)
      const isValid = compiled(value)
      validate.errors = compiled.errors
      return isValid
    }
    return validate
  }
}
