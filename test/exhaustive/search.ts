/** A small world: where it begins, what may happen next, and what must hold in every state. */
export interface Model<S> {
  readonly initial: readonly { readonly label: string; readonly state: S }[]
  /** Two states with one key have the same future. */
  keyOf(state: S): string
  /** Everything that may happen next. */
  next(state: S): Promise<readonly { readonly label: string; readonly state: S }[]>
  /** What is wrong with the state, in words; undefined: nothing. */
  violation(state: S): string | undefined
}

export interface Searched {
  readonly states: number
  /** Steps that were taken, including those that led to a known state. */
  readonly steps: number
  /** Length of the longest of the shortest ways to a state. */
  readonly depth: number
  /** The end of the search: what is wrong, and the shortest way to it. */
  readonly violation?: { readonly what: string; readonly trace: readonly string[] }
}

/**
 * Visits every state that can be reached, breadth first: so the way to the first violation is a shortest one.
 * @throws when there are more than `statesMax`.
 */
export async function search<S>(model: Model<S>, statesMax = Number.POSITIVE_INFINITY): Promise<Searched> {
  const known = new Set<string>()
  // Per state: how it came to be, for the trace.
  const labels: string[] = []
  const parents: number[] = []
  let steps = 0
  let depth = 0
  let layer: { readonly state: S; readonly index: number }[] = []
  let nextLayer: typeof layer = []

  /** @returns what is wrong with it. */
  const visit = (label: string, state: S, parent: number): string | undefined => {
    const key = model.keyOf(state)
    if (known.has(key)) return undefined
    known.add(key)
    if (known.size > statesMax) throw new Error(`there are more than ${statesMax} states`)
    nextLayer.push({ state, index: labels.length })
    labels.push(label)
    parents.push(parent)
    return model.violation(state)
  }
  const found = (what: string): Searched => {
    const trace: string[] = []
    for (let at = labels.length - 1; at >= 0; at = parents[at] as number) trace.unshift(labels[at] as string)
    return { states: known.size, steps, depth, violation: { what, trace } }
  }

  for (const { label, state } of model.initial) {
    const wrong = visit(label, state, -1)
    if (wrong !== undefined) return found(wrong)
  }
  while (nextLayer.length > 0) {
    layer = nextLayer
    nextLayer = []
    for (const { state, index } of layer)
      for (const { label, state: next } of await model.next(state)) {
        steps++
        const wrong = visit(label, next, index)
        if (wrong !== undefined) return found(wrong)
      }
    if (nextLayer.length > 0) depth++
  }
  return { states: known.size, steps, depth }
}
