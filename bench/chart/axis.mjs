/**
 * An axis over `values`.
 * @param kind `linear` (from 0) or `log10`.
 * @returns `at`: a value's place, 0 to 1; `ticks`: the values to mark.
 */
export function axis(values, kind = 'linear') {
  return kind === 'linear' ? linear(Math.max(0, ...values)) : logarithmic(values)
}

/** @param headroom up to which value at least; 0 stands for no values at all. */
export function linear(headroom, ticksMax = 6) {
  const rough = (headroom || 1) / ticksMax
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * (1 - 1e-9))
  const top = Math.ceil((headroom || 1) / step - 1e-9)
  return {
    at: (value) => value / (top * step),
    ticks: Array.from({ length: top + 1 }, (_, i) => Number((i * step).toPrecision(12))),
  }
}

function logarithmic(values) {
  const positive = values.filter((value) => value > 0)
  const low = Math.floor(Math.log10(Math.min(...positive)) + 1e-9)
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...positive)) - 1e-9))
  return {
    at: (value) => (Math.log10(value) - low) / (high - low),
    ticks: Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i)),
  }
}

/** 0.25, 512, 12,500, 100 k, 2.5 M. */
export function short(value) {
  if (value >= 1e6) return `${Number((value / 1e6).toPrecision(3))} M`
  if (value >= 1e5) return `${Number((value / 1e3).toPrecision(3))} k`
  return Number(value.toPrecision(4)).toLocaleString('en-US')
}
