/** One line on a terminal that is written over; nothing where stderr is none. */
export function progressLine(): { readonly show: (text: string) => void; readonly clear: () => void } {
  const write = (text: string): void => {
    if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`)
  }
  return { show: write, clear: () => write('') }
}
