/** A line on a terminal that is overwritten by the next. Shows nothing when stderr is not a terminal. */
export function progressLine(): { readonly show: (text: string) => void; readonly clear: () => void } {
  const write = (text: string): void => {
    if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`)
  }
  return { show: write, clear: () => write('') }
}
