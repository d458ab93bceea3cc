export const JOURNAL = 'REPAIR'
