import { BigtableSetupError } from './bigtable-setup-error.js'

export interface TableAddress {
  readonly project: string
  readonly instance: string
  readonly table: string
  readonly appProfile?: string | undefined
}

const FORM = 'bigtable://PROJECT/INSTANCE/TABLE[?app_profile=ID]'
const SCHEME = 'bigtable://'
const PATH_PARTS = 3
/** Characters that Google allows. A project may have its domain before a colon. */
const PROJECT = /^[a-z0-9][a-z0-9.:-]*$/
const NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]*$/

export function isTableAddress(text: string): boolean {
  return text.startsWith(SCHEME)
}

export function parseTableAddress(text: string): TableAddress {
  const refuse = (why: string): never => {
    throw new BigtableSetupError(`${JSON.stringify(text)} is no address of a table: ${why}; expected ${FORM}`)
  }
  if (!isTableAddress(text)) return refuse(`it does not begin with ${SCHEME}`)
  const queryAt = text.indexOf('?')
  const path = text.slice(SCHEME.length, queryAt === -1 ? undefined : queryAt).split('/')
  const [project = '', instance = '', table = ''] = path
  if (path.length !== PATH_PARTS) return refuse(`it has ${path.length} names where three are expected`)
  if (!PROJECT.test(project)) return refuse(`${JSON.stringify(project)} is no id of a project`)
  if (!NAME.test(instance)) return refuse(`${JSON.stringify(instance)} is no id of an instance`)
  if (!NAME.test(table)) return refuse(`${JSON.stringify(table)} is no id of a table`)
  if (queryAt === -1) return { project, instance, table }
  const parameters = [...new URLSearchParams(text.slice(queryAt + 1))]
  const unknown = parameters.find(([name]) => name !== 'app_profile')
  if (unknown) return refuse(`there is no parameter ${JSON.stringify(unknown[0])}`)
  const [found, ...more] = parameters
  if (found === undefined) return refuse('there is no app_profile after the question mark')
  const [, appProfile] = found
  if (more.length > 0) return refuse('app_profile is there more than once')
  if (!NAME.test(appProfile)) return refuse(`${JSON.stringify(appProfile)} is no id of an app profile`)
  return { project, instance, table, appProfile }
}

export function printTableAddress({ project, instance, table, appProfile }: TableAddress): string {
  return `${SCHEME}${project}/${instance}/${table}${appProfile === undefined ? '' : `?app_profile=${appProfile}`}`
}

export function instanceName({ project, instance }: TableAddress): string {
  return `projects/${project}/instances/${instance}`
}

/** Google's name of the profile that calls without one have. */
const DEFAULT_PROFILE = 'default'

export function appProfileName(address: TableAddress): string {
  return `${instanceName(address)}/appProfiles/${address.appProfile ?? DEFAULT_PROFILE}`
}

export function tableName(address: TableAddress): string {
  return `${instanceName(address)}/tables/${address.table}`
}
