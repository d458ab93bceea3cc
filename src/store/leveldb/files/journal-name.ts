/** Name of the file that stands beside LevelDB's files while `perkv repair` changes them. */
export const JOURNAL = 'REPAIR'
