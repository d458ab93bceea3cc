import { makeDirectory, removeDirectory, start, stop } from '../process.mjs'

export const startPerkv = (data) => start(['dist/cli.js', 'serve', '--port', '0', '--data', data])

/** Runs `use` with a PerKV on the directory. */
export async function withPerkvOn(data, use) {
  const server = await startPerkv(data)
  try {
    return await use(server)
  } finally {
    await stop(server)
  }
}

/** Runs `use` with a directory of its own, empty. */
export async function withDirectory(use) {
  const directory = makeDirectory()
  try {
    return await use(directory)
  } finally {
    removeDirectory(directory)
  }
}

/** Runs `use` with a PerKV of its own, empty. */
export const withPerkv = (use) => withDirectory((data) => withPerkvOn(data, (server) => use(server, data)))
