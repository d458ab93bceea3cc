/** Dark enough for the white ground that every chart brings along, on whatever page it stands. */
export const COLOURS = {
  text: '#1f2328',
  muted: '#59636e',
  grid: '#e4e7eb',
  grey: '#8c959f',
  series: ['#0969da', '#bc4c00', '#1a7f37', '#8250df'],
}

export function text(x, y, words, { anchor = 'start', colour = COLOURS.text, size = 12, weight, turn } = {}) {
  const bold = weight === undefined ? '' : ` font-weight="${weight}"`
  const turned = turn === undefined ? '' : ` transform="rotate(${turn} ${round(x)} ${round(y)})"`
  return `<text x="${round(x)}" y="${round(y)}" font-size="${size}" fill="${colour}" text-anchor="${anchor}"${bold}${turned}>${escaped(words)}</text>`
}

export function line(x1, y1, x2, y2, colour, width = 1) {
  return `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}" stroke="${colour}" stroke-width="${width}"/>`
}

/** @param title what the picture says to those who can't see it, too. */
export function picture(width, height, title, elements) {
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif">`,
    `<title>${escaped(title)}</title>`,
    `<rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8" fill="#ffffff" stroke="${COLOURS.grid}"/>`,
    ...elements,
    '</svg>',
  ].join('\n')}\n`
}

export const round = (number) => Math.round(number * 100) / 100

const ESCAPES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
const escaped = (words) => String(words).replace(/[&<>"]/g, (character) => ESCAPES[character])
