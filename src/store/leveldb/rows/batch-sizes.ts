/** Keys whose rows are read from LevelDB at once, or latched at once by walks over a range. */
export const KEYS_AT_A_TIME = 256
export const PAGE = 1000
