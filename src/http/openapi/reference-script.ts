/** Filters calls, and opens the call that a link names. Without it the page shows everything. */
export const SCRIPT = `
const filter = document.getElementById('filter')
const calls = [...document.querySelectorAll('[data-call]')]
const areas = [...document.querySelectorAll('[data-area]')]
const nothing = document.getElementById('nothing')
function show() {
  const words = filter.value.toLowerCase().split(' ').filter(Boolean)
  for (const call of calls) call.hidden = !words.every((word) => call.dataset.call.includes(word))
  for (const area of areas) area.hidden = !area.querySelector('[data-call]:not([hidden])')
  nothing.hidden = calls.some((call) => !call.hidden)
  document.body.classList.toggle('filtered', words.length > 0)
}
filter.addEventListener('input', show)
filter.form.addEventListener('submit', (event) => {
  event.preventDefault()
  const first = document.querySelector('main [data-call]:not([hidden])')
  if (first) location.hash = first.id
})
document.addEventListener('keydown', (event) => {
  if (event.key === '/' && document.activeElement !== filter) {
    event.preventDefault()
    filter.focus()
  } else if (event.key === 'Escape' && document.activeElement === filter) {
    filter.value = ''
    show()
  }
})
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)))
  if (!target) return
  if (target.hidden || target.id === 'problems' || target.id.startsWith('code-')) {
    filter.value = ''
    show()
  }
  if (target.matches('details')) target.open = true
  target.scrollIntoView()
  const summary = target.querySelector('summary')
  if (summary) summary.focus({ preventScroll: true })
}
addEventListener('hashchange', reveal)
const menu = document.querySelector('nav > details')
const narrow = matchMedia('(max-width: 60rem)')
if (narrow.matches) menu.open = false
narrow.addEventListener('change', () => (menu.open = !narrow.matches))
menu.addEventListener('click', (event) => {
  const link = event.target.closest('a')
  if (!link) return
  if (narrow.matches) menu.open = false
  if (link.hash === location.hash) reveal()
})
reveal()
`
