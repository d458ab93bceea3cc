/** Keys whose rows are read from LevelDB at once, and latched together where a whole range is walked. */
export const KEYS_AT_A_TIME = 256
/** Records read at a time where a whole range is walked. */
export const PAGE = 1000
