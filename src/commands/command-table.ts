import type { ClientCommand } from './client/client-command.js'
import type { Command, CommandEntry } from './command.js'

export const COMMAND_GROUPS: Readonly<Record<string, Readonly<Record<string, CommandEntry>>>> = {
  'Read and write': {
    get: client('get', 'prints the value of a key'),
    put: client('put', 'writes a key'),
    touch: client('touch', 'gives a key another expiry'),
    del: client('del', 'deletes a key, or all with a prefix'),
    scan: client('scan', 'prints the pairs of a range'),
    count: client('count', 'counts the keys of a range'),
    txn: client('txn', 'runs a transaction of checks and ops'),
  },
  Follow: {
    watch: client('watch', 'prints the versions of a key as they come'),
    changes: client('changes', 'prints what is committed, whole transactions in order'),
  },
  'Look inside': {
    status: client('status', 'prints the state of the server'),
    locks: client('locks', 'prints the locks that stand'),
    mvcc: client('mvcc', 'prints all records of a key, as Percolator keeps them'),
    observers: client('observers', 'prints the observers with their queues, moves them on'),
    top: {
      does: 'shows rates, latencies and lag, live',
      load: async () => clientCommandOf('top', (await import('./client/top.js')).top),
    },
    leases: client('leases', 'prints who holds which lease'),
    consumers: client('consumers', 'prints the consumers of the feed, resets them'),
    pins: client('pins', 'prints the pins of old snapshots, deletes them'),
    gc: client('gc', 'collects old versions'),
  },
  'By hand': {
    lease: {
      does: 'runs a command while it holds a lease',
      load: async () => clientCommandOf('lease', (await import('./client/lease.js')).lease),
    },
    mcp: {
      does: 'offers a server to assistants that speak MCP',
      load: async () => (await import('./mcp/mcp.js')).mcp,
    },
    shell: { does: 'runs these commands line by line', load: async () => (await import('./shell/shell.js')).shell },
    completion: {
      does: 'prints a script for completion by Tab',
      load: async () => (await import('./completion.js')).completionOf(COMMANDS),
    },
  },
  'Move data': {
    backup: {
      does: 'writes all pairs of a server to a file',
      load: async () => (await import('./backup.js')).backup,
    },
    restore: {
      does: 'fills an empty server from such a file',
      load: async () => (await import('./restore.js')).restore,
    },
    dump: { does: 'writes pairs as lines of JSON', load: async () => (await import('./dump.js')).dump },
    load: { does: 'puts pairs from lines of JSON', load: async () => (await import('./load.js')).load },
  },
  'Run a server': {
    serve: { does: 'runs the server', load: async () => (await import('./serve.js')).serve },
    store: {
      does: 'makes the table that servers share, or verifies it',
      load: async () => (await import('./store.js')).store,
    },
    bigtable: {
      does: 'another name of store',
      load: async () => (await import('./store.js')).store,
    },
    check: { does: 'verifies a database', load: async () => (await import('./check.js')).check },
    repair: { does: 'mends a damaged one', load: async () => (await import('./repair.js')).repair },
  },
}

export const COMMANDS: ReadonlyMap<string, CommandEntry> = new Map(
  Object.values(COMMAND_GROUPS).flatMap((group) => Object.entries(group)),
)

type ClientCommandName = keyof typeof import('./client/client-commands.js')['CLIENT_COMMANDS']

function client(name: ClientCommandName, does: string): CommandEntry {
  return {
    does,
    load: async () => clientCommandOf(name, (await import('./client/client-commands.js')).CLIENT_COMMANDS[name]),
  }
}

async function clientCommandOf(name: string, command: ClientCommand): Promise<Command> {
  return (await import('./client/client-command.js')).commandOf(name, command)
}
