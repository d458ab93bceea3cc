import { oneOf, readFlags } from '../server/flags.js'
import type { Command, CommandEntry } from './command.js'

const SHELLS = ['bash', 'zsh', 'fish'] as const

interface Completed {
  readonly name: string
  readonly does: string
  readonly command: Pick<Command, 'flags' | 'operands'>
}

const HELP = `Usage: perkv completion bash|zsh|fish

Prints a script for a shell, which then completes the commands and flags of perkv by Tab.

Example:
  $ source <(perkv completion bash)                                            # in ~/.bashrc
  $ perkv completion zsh > ~/.zfunc/_perkv                                     # with fpath+=(~/.zfunc) before compinit
  $ perkv completion fish > ~/.config/fish/completions/perkv.fish
`

export function completionOf(commands: ReadonlyMap<string, CommandEntry>): Command {
  const operands = ['bash|zsh|fish']
  return {
    flags: {},
    operands,
    help: HELP,
    async run(args, env) {
      const flags = readFlags({}, args, env, operands)
      const shell = oneOf({ text: flags.positionals[0] ?? '', from: 'the shell' }, SHELLS)
      const completed = await Promise.all(
        [...commands].map(async ([name, { does, load }]) => ({ name, does, command: await load() })),
      )
      process.stdout.write({ bash, zsh, fish }[shell](completed))
    },
  }
}

/** Operands and values of flags that name files. */
const FILES = /^\[?(?:FILE|DIR|INCREMENT)/

function takesFiles({ command }: Completed): boolean {
  return command.operands.some((operand) => FILES.test(operand))
}

/** Operands such as `bash|zsh|fish`. */
function wordsOf({ command }: Completed): readonly string[] {
  return command.operands.flatMap((operand) => (/^[a-z|]+$/.test(operand) ? operand.split('|') : []))
}

function flagNames({ command }: Completed, isWanted: (value: string | undefined) => boolean = () => true): string[] {
  return Object.entries(command.flags)
    .filter(([, { value }]) => isWanted(value))
    .map(([name]) => `--${name}`)
}

function bash(commands: readonly Completed[]): string {
  const names = commands.map(({ name }) => name)
  const ofFiles = [...new Set(commands.flatMap((one) => flagNames(one, (value) => FILES.test(value ?? ''))))]
  const ofValues = [...new Set(commands.flatMap((one) => flagNames(one, (value) => value !== undefined)))]
  const cases = commands.map((one) => {
    const words = [...flagNames(one), '--help', ...wordsOf(one)].join(' ')
    return `    ${one.name}) words='${words}' files=${takesFiles(one) ? 'yes' : ''} ;;\n`
  })
  return `# Completion of perkv for bash: source <(perkv completion bash)
_perkv() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD - 1]} words= files=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W '${[...names, 'help', '--help', '--version'].join(' ')}' -- "$current")
    return
  fi
  case \${COMP_WORDS[1]} in
${cases.join('')}    help) words='${names.join(' ')}' ;;
  esac
  case $previous in
    ${ofFiles.join('|')}) words= files=yes ;;
    ${ofValues.filter((name) => !ofFiles.includes(name)).join('|')}) return ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"; [ -z "$files" ] || compgen -f -- "$current")
  [ -z "$files" ] || compopt -o filenames 2> /dev/null
}
complete -F _perkv perkv
`
}

function zsh(commands: readonly Completed[]): string {
  const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`
  const escaped = (text: string): string => text.replace(/[[\]:\\]/g, '\\$&')
  const cases = commands.map((one) => {
    const flags = Object.entries(one.command.flags).map(([name, { value, help }]) => {
      const argument = value === undefined ? '' : `:${value}:${FILES.test(value) ? '_files' : ' '}`
      return quote(`--${name}[${escaped(help)}]${argument}`)
    })
    const words = wordsOf(one)
    const operands = words.length > 0 ? [quote(`*::(${words.join(' ')})`)] : takesFiles(one) ? [quote('*::_files')] : []
    const lines = [...flags, quote('--help[says more]'), ...operands.map((one) => one.replace('*::', '*:argument:'))]
    return `    ${one.name}) _arguments ${lines.join(' \\\n        ')} ;;\n`
  })
  return `#compdef perkv
# Completion of perkv for zsh: perkv completion zsh > a file _perkv in a folder of $fpath
_perkv() {
  if (( CURRENT == 2 )); then
    local -a commands=(
${commands.map(({ name, does }) => `      ${quote(`${name}:${does}`)}\n`).join('')}      'help:says more about a command'
    )
    _describe command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
${cases.join('')}    help) _values command ${commands.map(({ name }) => name).join(' ')} ;;
  esac
}
if [ "$funcstack[1]" = _perkv ]; then _perkv "$@"; else compdef _perkv perkv; fi
`
}

function fish(commands: readonly Completed[]): string {
  const quote = (text: string): string => `'${text.replace(/[\\']/g, '\\$&')}'`
  const names = commands.map(({ name }) => name).join(' ')
  const lines = commands.flatMap((one) => {
    const isIt = quote(`__fish_seen_subcommand_from ${one.name}`)
    const flags = Object.entries(one.command.flags).map(([name, { value, help }]) => {
      const kind = value === undefined ? '' : FILES.test(value) ? ' -r -F' : ' -x'
      return `complete -c perkv -n ${isIt} -l ${name}${kind} -d ${quote(help)}`
    })
    const words = wordsOf(one)
    return [
      `complete -c perkv -n __fish_use_subcommand -a ${one.name} -d ${quote(one.does)}`,
      ...flags,
      ...(words.length > 0 ? [`complete -c perkv -n ${isIt} -a ${quote(words.join(' '))}`] : []),
      ...(takesFiles(one) ? [`complete -c perkv -n ${isIt} -F`] : []),
    ]
  })
  return `# Completion of perkv for fish: perkv completion fish > ~/.config/fish/completions/perkv.fish
complete -c perkv -f
complete -c perkv -l help -d 'says more'
complete -c perkv -n __fish_use_subcommand -a help -d 'says more about a command'
complete -c perkv -n '__fish_seen_subcommand_from help' -a ${quote(names)}
${lines.join('\n')}
`
}
