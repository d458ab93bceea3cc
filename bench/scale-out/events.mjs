/** What happens, in the order of simulated time; what is due at one moment, in the order in which it was planned. */
export class Events {
  /** Milliseconds. */
  now = 0
  #times = []
  #orders = []
  #bodies = []
  #planned = 0

  after(ms, body) {
    this.at(this.now + ms, body)
  }

  at(time, body) {
    let child = this.#times.length
    const order = this.#planned++
    while (child > 0) {
      const parent = (child - 1) >> 1
      if (this.#times[parent] <= time) break
      this.#move(parent, child)
      child = parent
    }
    this.#put(child, time, order, body)
  }

  /** Does all that is due until then. */
  run(until) {
    while (this.#times.length > 0 && this.#times[0] <= until) {
      this.now = this.#times[0]
      this.#takeFirst()()
    }
    this.now = until
  }

  #takeFirst() {
    const first = this.#bodies[0]
    const [time, order, body] = [this.#times.pop(), this.#orders.pop(), this.#bodies.pop()]
    const size = this.#times.length
    if (size === 0) return first
    let parent = 0
    for (;;) {
      let child = 2 * parent + 1
      if (child + 1 < size && this.#isBefore(child + 1, this.#times[child], this.#orders[child])) child++
      if (child >= size || !this.#isBefore(child, time, order)) break
      this.#move(child, parent)
      parent = child
    }
    this.#put(parent, time, order, body)
    return first
  }

  #isBefore(i, time, order) {
    return this.#times[i] < time || (this.#times[i] === time && this.#orders[i] < order)
  }

  #move(from, to) {
    this.#put(to, this.#times[from], this.#orders[from], this.#bodies[from])
  }

  #put(i, time, order, body) {
    this.#times[i] = time
    this.#orders[i] = order
    this.#bodies[i] = body
  }
}
