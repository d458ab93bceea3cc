/** What must not be, and was. */
export interface Violation {
  readonly kind: string
  readonly detail: string
}

export class Violations {
  readonly all: Violation[] = []

  add(kind: string, detail: string): void {
    if (this.all.length < 50) this.all.push({ kind, detail })
  }
}
