const CODES = { bold: [1, 22], dim: [2, 22], red: [31, 39], yellow: [33, 39] } as const

export type Colour = keyof typeof CODES
/** @returns the text between the codes of a colour, or as it is where colours are not shown. */
export type Paint = (colour: Colour, text: string) => string

export const PLAIN: Paint = (_, text) => text

/** Colours are shown on a terminal. `FORCE_COLOR` and `NO_COLOR` decide otherwise, in this order. */
export function paintFor({ isTTY = false }: { readonly isTTY?: boolean }, env: NodeJS.ProcessEnv): Paint {
  const { FORCE_COLOR: force, NO_COLOR: no, TERM: term } = env
  const isColoured = force === undefined ? isTTY && !no && term !== 'dumb' : force !== '0' && force !== 'false'
  if (!isColoured) return PLAIN
  return (colour, text) => `\x1b[${CODES[colour][0]}m${text}\x1b[${CODES[colour][1]}m`
}
