/**
 * The tickets of one evening at a theatre, in PerKV.
 *
 *   hamlet/seat/A1       `free`, or the number of the order that has the seat
 *   hamlet/booking/1001  `{"name", "seats"}` of an order
 *   hamlet/letter/0001   a letter to a customer, written by letters.mjs
 *   hamlet/letters       the number of the last letter
 */

/** @typedef {import('perkv/client').Db} Db */
/** @typedef {import('perkv/client').Txn} Txn */
/** @typedef {Map<string, string>} Plan value by seat, in the order of the seats */

export const SEATS = 'hamlet/seat/'
export const BOOKINGS = 'hamlet/booking/'
export const LETTERS = 'hamlet/letter/'
export const LAST_LETTER = 'hamlet/letters'

export const FREE = 'free'
const ROWS = ['A', 'B']
const SEATS_PER_ROW = 6

/** The theatre does not do what the customer wants. Not retried, because it is no lost race. */
export class Refused extends Error {}

/** Puts all seats on sale. @param {Db} db */
export async function open(db) {
  await db.transaction(async (txn) => {
    for (const row of ROWS)
      for (let number = 1; number <= SEATS_PER_ROW; number++) await txn.insert(`${SEATS}${row}${number}`, FREE)
  })
}

/**
 * Books seats, all of them or none.
 * @param {Db} db @param {string} order chosen by the caller, so that the same order sent twice is one booking
 * @param {string} name @param {readonly string[]} seats
 */
export async function book(db, order, name, seats) {
  const booking = JSON.stringify({ name, seats })
  await db.transaction(
    async (txn) => {
      const known = await txn.get(BOOKINGS + order)
      if (known === booking) return // Sent twice: it is booked already.
      if (known !== undefined) throw new Refused(`order ${order} is another booking`)
      const before = await readPlan(txn)
      for (const seat of seats) {
        if (!before.has(seat)) throw new Refused(`there is no seat ${seat}`)
        if (before.get(seat) !== FREE) throw new Refused(`${seat} is taken`)
        await txn.put(SEATS + seat, order)
      }
      const after = await readPlan(txn) // A transaction reads its own writes.
      if (singleSeats(after) > singleSeats(before)) throw new Refused('a single seat would be left over')
      await txn.put(BOOKINGS + order, booking)
    },
    { isolation: 'serializable', retries: 100 },
  )
}

/** Gives the seats of an order back. @param {Db} db @param {string} order */
export async function cancel(db, order) {
  await db.transaction(async (txn) => {
    const booking = await txn.get(BOOKINGS + order)
    if (booking === undefined) throw new Refused(`there is no order ${order}`)
    for (const seat of JSON.parse(booking).seats) await txn.put(SEATS + seat, FREE)
    await txn.delete(BOOKINGS + order)
  })
}

/** @param {Pick<Db, 'scan'> | Pick<Txn, 'scan'>} reader a database, a snapshot of it, or a transaction @returns {Promise<Plan>} */
export async function readPlan(reader) {
  const plan = new Map()
  for await (const { key, value } of reader.scan({ prefix: SEATS })) plan.set(key.slice(SEATS.length), value)
  return plan
}

/** How many free seats have nobody to sit beside: both neighbours are taken, or a wall. @param {Plan} plan */
function singleSeats(plan) {
  return rowsOf(plan).reduce((sum, row) => sum + (row.match(/(?<!\.)\.(?!\.)/g)?.length ?? 0), 0)
}

/** One line, such as `A ##....  B ......  10 free`. @param {Plan} plan */
export function drawPlan(plan) {
  const rows = rowsOf(plan).map((row, i) => `${ROWS[i]} ${row}`)
  const free = [...plan.values()].filter((value) => value === FREE).length
  return [...rows, `${free} free`].join('  ')
}

/** A dot for each free seat, `#` for the others. @param {Plan} plan */
function rowsOf(plan) {
  const seats = [...plan].sort(([a], [b]) => (a < b ? -1 : 1))
  return ROWS.map((row) =>
    seats
      .filter(([seat]) => seat.startsWith(row))
      .map(([, value]) => (value === FREE ? '.' : '#'))
      .join(''),
  )
}
