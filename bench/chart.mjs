// SVG pictures of measurements, as strings.
export { bars } from './chart/bars.mjs'
export { lines } from './chart/lines.mjs'
