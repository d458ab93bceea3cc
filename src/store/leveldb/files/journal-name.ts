/** File beside LevelDB's files while `perkv repair` changes them. */
export const JOURNAL = 'REPAIR'
