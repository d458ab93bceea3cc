const INSTANT = /^(\d{4})-(\d\d)-(\d\d)[Tt ](?:[01]\d|2[0-3]):\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/

/** @returns Unix milliseconds; undefined unless the text is an instant of RFC 3339 on a day that exists. */
export function unixMsOfInstant(text: string): number | undefined {
  const [, year, month, day] = INSTANT.exec(text) ?? []
  const daysInMonth = new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate()
  const unixMs = Date.parse(text.replace(' ', 'T'))
  return day !== undefined && Number(day) <= daysInMonth && !Number.isNaN(unixMs) ? unixMs : undefined
}
