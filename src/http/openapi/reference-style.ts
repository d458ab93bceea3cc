export const STYLE = `
:root {
  color-scheme: light dark;
  --back: #fff; --fore: #1b1f24; --dim: #57606a; --line: #d0d7de; --soft: #f6f8fa; --link: #0550ae;
  --get: #0550ae; --put: #7d4e00; --post: #116329; --delete: #a40e26; --head: #57606a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #0d1117; --fore: #e6edf3; --dim: #9aa4af; --line: #30363d; --soft: #161b22; --link: #79c0ff;
    --get: #79c0ff; --put: #e3b341; --post: #7ee787; --delete: #ffa198; --head: #9aa4af;
  }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 4.5rem; }
body {
  margin: 0; background: var(--back); color: var(--fore); font: 16px/1.5 system-ui, sans-serif;
  display: grid; grid-template: auto 1fr / 20rem minmax(0, 1fr);
}
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 2px; }
code, pre { font: 0.875em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
p code, dd code, li code { background: var(--soft); border-radius: 4px; padding: 0.1em 0.3em; }
[hidden] { display: none !important; }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: 0.5rem; z-index: 3; background: var(--back); padding: 0.5rem; }
header {
  grid-column: 1 / -1; position: sticky; top: 0; z-index: 2; display: flex; align-items: center; gap: 1rem;
  padding: 0.6rem 1.25rem; background: var(--back); border-bottom: 1px solid var(--line);
}
header h1 { margin: 0; font-size: 1.15rem; white-space: nowrap; }
header small { color: var(--dim); font-weight: normal; }
header form { flex: 1; max-width: 32rem; }
header input {
  width: 100%; padding: 0.45rem 0.7rem; font: inherit; color: inherit; background: var(--soft);
  border: 1px solid var(--line); border-radius: 6px;
}
header a { margin-left: auto; white-space: nowrap; }
nav {
  position: sticky; top: 3.9rem; align-self: start; max-height: calc(100vh - 3.9rem); overflow-y: auto;
  padding: 1rem 1.25rem; font-size: 0.875rem;
}
nav > details > summary { display: none; }
nav h2 { margin: 1rem 0 0.25rem; font-size: 0.875rem; }
nav h2 a { color: inherit; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav li a { display: flex; gap: 0.5rem; padding: 0.2rem 0; color: var(--dim); line-height: 1.35; }
nav li a:hover { color: var(--fore); }
nav li b { flex: 0 0 3.4rem; font-size: 0.7rem; line-height: 1.7; }
main { padding: 1rem 2rem 6rem; max-width: 62rem; border-left: 1px solid var(--line); min-height: 100vh; }
.filtered .intro, .filtered .problems { display: none; }
.intro { color: var(--dim); border-bottom: 1px solid var(--line); }
.intro strong { color: var(--fore); }
.area > h2 { margin: 2.5rem 0 0; font-size: 1.4rem; }
.area > p { color: var(--dim); margin-top: 0.25rem; }
.call { border: 1px solid var(--line); border-radius: 8px; margin: 0.6rem 0; }
.call > summary { padding: 0.6rem 0.9rem; cursor: pointer; list-style: none; }
.call > summary::-webkit-details-marker { display: none; }
.call > summary:hover { background: var(--soft); }
.call[open] > summary { border-bottom: 1px solid var(--line); background: var(--soft); border-radius: 8px 8px 0 0; }
.call h3 { margin: 0; font-size: 1rem; font-weight: normal; display: flex; flex-wrap: wrap; gap: 0 0.75rem; align-items: baseline; }
.call h3 b { flex: 0 0 3.6rem; font-size: 0.8rem; }
.call h3 code { font-weight: 600; overflow-wrap: anywhere; }
.call h3 i { color: var(--dim); }
.call h3 span { color: var(--dim); margin-left: auto; text-align: right; }
.call .body { padding: 0.25rem 1rem 1rem; }
.call h4 { margin: 1.4rem 0 0.4rem; font-size: 0.95rem; }
.GET { color: var(--get); } .PUT { color: var(--put); } .POST { color: var(--post); }
.DELETE { color: var(--delete); } .HEAD { color: var(--head); }
pre {
  margin: 0.4rem 0; padding: 0.7rem 0.9rem; background: var(--soft); border: 1px solid var(--line); border-radius: 6px;
  overflow: auto; max-height: 26rem;
}
pre.curl { white-space: pre-wrap; overflow-wrap: anywhere; }
pre.answer { border-left: 3px solid var(--line); white-space: pre-wrap; overflow-wrap: anywhere; }
pre.answer b { color: var(--dim); }
.sample > summary { cursor: pointer; padding: 0.25rem 0; color: var(--link); }
dl { margin: 0.25rem 0 0.75rem; display: grid; grid-template-columns: minmax(10rem, 18rem) minmax(0, 1fr); }
dt, dd { margin: 0; padding: 0.4rem 0; border-top: 1px solid var(--line); overflow-wrap: anywhere; }
dt { padding-right: 1rem; }
dt code { font-weight: 600; }
dt i { display: block; color: var(--dim); font-size: 0.8rem; font-style: normal; }
.codes { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: 0.3rem 1rem; }
.codes b { color: var(--dim); }
.problem { border-top: 1px solid var(--line); padding: 0.25rem 0; }
.problem h3 { font-size: 1rem; margin: 0.6rem 0 0; }
.problem h3 b { color: var(--dim); }
.problem p { margin: 0.25rem 0 0.5rem; }
@media (max-width: 60rem) {
  body { display: block; }
  header { padding: 0.5rem 0.9rem; gap: 0.6rem; }
  nav { position: static; max-height: none; padding: 0.6rem 0.9rem 0; }
  nav > details > summary { display: list-item; font-size: 1rem; padding: 0.3rem 0; cursor: pointer; }
  nav li a { padding: 0.45rem 0; }
  main { padding: 0.25rem 0.9rem 4rem; border-left: 0; }
}
@media (max-width: 40rem) {
  header a { font-size: 0; }
  header a::after { content: 'JSON'; font-size: 1rem; }
  dl { display: block; }
  dd { border-top: 0; padding-top: 0; }
  dd:empty { display: none; }
  .call h3 span { margin-left: 0; text-align: left; flex-basis: 100%; }
  .call .body { padding: 0.25rem 0.75rem 0.75rem; }
}
@media print {
  header form, nav, .skip { display: none; }
  body { display: block; }
}
`
