export const KEYS_AT_A_TIME = 256
export const PAGE = 1000
