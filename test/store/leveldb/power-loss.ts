/** What a program does to one directory, as far as power loss can undo it. */
export type DiskStep =
  | { readonly do: 'create'; readonly file: string }
  | { readonly do: 'append'; readonly file: string; readonly bytes: Buffer }
  | { readonly do: 'rename'; readonly file: string; readonly to: string }
  | { readonly do: 'unlink'; readonly file: string }
  | { readonly do: 'fsync'; readonly file: string }
  | { readonly do: 'fsync names' }

export type DirectoryState = ReadonlyMap<string, Buffer>

/** What is left of bytes that were not fsynced. */
const REMAINS: readonly ((bytes: Buffer) => Buffer)[] = [
  (bytes) => bytes,
  () => Buffer.alloc(0),
  (bytes) => bytes.subarray(0, bytes.length / 2),
  (bytes) => Buffer.alloc(bytes.length),
]

interface Content {
  synced: Buffer
  unsynced: Buffer
}

/**
 * Every directory that power loss at one moment may leave, each once. An fsync of a file keeps its bytes; its name, and
 * renamings and deletions, are only kept by an fsync of the names. Of those after the last one either the first few are
 * kept, as a journal does it, or all but one. The bytes of files that were not fsynced are kept, lost, cut or zeros.
 */
export function statesAfterPowerLoss(steps: readonly DiskStep[]): DirectoryState[] {
  const { named, pending } = replay(steps)
  const kept = [
    ...pending.map((_, count) => pending.slice(0, count)),
    ...pending.map((_, dropped) => pending.filter((__, i) => i !== dropped)),
    pending,
  ]
  const states = new Map<string, DirectoryState>()
  for (const changes of kept) {
    const files = new Map(named)
    for (const change of changes) change(files)
    for (const remains of REMAINS) {
      const state = new Map(
        [...files].map(([file, { synced, unsynced }]) => [file, Buffer.concat([synced, remains(unsynced)])]),
      )
      states.set(
        [...state]
          .map(([file, bytes]) => `${file} ${bytes.toString('base64')}`)
          .sort()
          .join('\n'),
        state,
      )
    }
  }
  return [...states.values()]
}

type Names = Map<string, Content>

function replay(steps: readonly DiskStep[]): { named: Names; pending: ((names: Names) => void)[] } {
  const named: Names = new Map()
  /** As the program sees it. */
  const seen: Names = new Map()
  let pending: ((names: Names) => void)[] = []
  const change = (apply: (names: Names) => void): void => {
    apply(seen)
    pending.push(apply)
  }
  for (const step of steps) {
    if (step.do === 'fsync names') {
      for (const apply of pending) apply(named)
      pending = []
    } else if (step.do === 'create') {
      const content = { synced: Buffer.alloc(0), unsynced: Buffer.alloc(0) }
      change((names) => names.set(step.file, content))
    } else if (step.do === 'unlink') change((names) => names.delete(step.file))
    else {
      const content = seen.get(step.file) as Content
      if (step.do === 'rename')
        change((names) => {
          names.delete(step.file)
          names.set(step.to, content)
        })
      else if (step.do === 'append') content.unsynced = Buffer.concat([content.unsynced, step.bytes])
      else {
        content.synced = Buffer.concat([content.synced, content.unsynced])
        content.unsynced = Buffer.alloc(0)
      }
    }
  }
  return { named, pending }
}
