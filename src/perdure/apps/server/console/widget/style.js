// The style of the chat. A page sets the custom properties `--perdure-…` on `perdure-chat`.
const LIGHT = `
  --page: var(--perdure-background, #ffffff); --text: var(--perdure-text, #1c2421);
  --muted: var(--perdure-muted, #55625c); --line: var(--perdure-line, #d9dedb);
  --accent: var(--perdure-accent, #23604f); --on-accent: var(--perdure-on-accent, #ffffff);
  --raised: var(--perdure-raised, #eef1ee); --bad: #a62b2b; color-scheme: light;`;
const DARK = `
  --page: var(--perdure-background, #191f1c); --text: var(--perdure-text, #e4eae6);
  --muted: var(--perdure-muted, #a2afa8); --line: var(--perdure-line, #39443e);
  --accent: var(--perdure-accent, #7cc4ab); --on-accent: var(--perdure-on-accent, #0d1512);
  --raised: var(--perdure-raised, #26302b); --bad: #ef9a94; color-scheme: dark;`;

export const STYLE = `
:host { all: initial; ${LIGHT}
  font: 15px/1.5 var(--perdure-font, system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif); }
@media (prefers-color-scheme: dark) { :host(:not([data-theme="light"])) { ${DARK} } }
:host([data-theme="dark"]) { ${DARK} }
* { box-sizing: border-box; margin: 0; }
button, textarea { font: inherit; color: inherit; }
button { cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.launcher { position: fixed; right: 20px; bottom: 20px; z-index: 2147483000; width: 56px; height: 56px; border: 0; border-radius: 50%;
  background: var(--accent); color: var(--on-accent); box-shadow: 0 2px 12px rgb(0 0 0 / .3); display: grid; place-items: center; }
.launcher svg { width: 26px; height: 26px; fill: currentColor; }
.panel { position: fixed; right: 20px; bottom: 88px; z-index: 2147483000; width: 384px; height: min(600px, calc(100dvh - 108px));
  display: flex; flex-direction: column; background: var(--page); color: var(--text); border: 1px solid var(--line);
  border-radius: var(--perdure-radius, 12px); box-shadow: 0 8px 32px rgb(0 0 0 / .25); overflow: hidden; }
.panel header { display: flex; justify-content: space-between; align-items: center; padding: 10px 10px 10px 16px; border-bottom: 1px solid var(--line); }
.panel h2 { font-size: 16px; font-weight: 650; }
.close { border: 0; background: none; width: 36px; height: 36px; font-size: 22px; line-height: 1; border-radius: 8px; }
.close:hover { background: var(--raised); }
.scroll { flex: 1; min-height: 0; overflow-y: auto; padding: 16px; overscroll-behavior: contain; }
.scroll:focus-visible { outline-offset: -2px; }
.message { position: relative; width: fit-content; max-width: 88%; padding: 8px 12px; margin-bottom: 10px; border-radius: 12px; overflow-wrap: anywhere; }
.message.user { margin-left: auto; background: var(--accent); color: var(--on-accent); border-bottom-right-radius: 4px; }
.message.user p { white-space: pre-wrap; }
.message.assistant { background: var(--raised); border-bottom-left-radius: 4px; }
.message.pending { opacity: .65; }
.prose { display: grid; gap: 8px; }
.prose p { white-space: pre-wrap; }
.prose .heading { font-weight: 650; }
.prose ul, .prose ol { padding-left: 22px; }
.prose blockquote { padding-left: 10px; border-left: 3px solid var(--line); color: var(--muted); }
.prose a { color: var(--accent); }
.prose hr { border: 0; border-top: 1px solid var(--line); width: 100%; }
.prose code { font: 13px var(--perdure-mono, ui-monospace, "DejaVu Sans Mono", monospace); }
.code { border: 1px solid var(--line); border-radius: 8px; overflow: hidden; background: var(--page); min-width: 0; }
.code-head { display: flex; justify-content: space-between; padding: 2px 8px; font-size: 12px; color: var(--muted); border-bottom: 1px solid var(--line); }
.code-head button { border: 0; background: none; }
.code pre { padding: 8px; overflow: auto; max-height: 260px; }
.table { overflow: auto; }
table { border-collapse: collapse; font-size: 14px; }
th, td { border: 1px solid var(--line); padding: 3px 8px; text-align: left; }
.dots { display: flex; gap: 5px; padding: 12px; }
.dots i { width: 7px; height: 7px; border-radius: 50%; background: var(--muted); animation: wait 1.2s infinite; }
.dots i:nth-child(2) { animation-delay: .2s; } .dots i:nth-child(3) { animation-delay: .4s; }
@keyframes wait { 50% { opacity: .25; } }
@media (prefers-reduced-motion: reduce) { .dots i { animation: none; } }
.status { padding: 0 16px 6px; font-size: 13px; color: var(--bad); min-height: 26px; }
.status.quiet { color: var(--muted); }
form { display: flex; gap: 8px; padding: 12px; border-top: 1px solid var(--line); align-items: end; }
textarea { flex: 1; min-width: 0; resize: none; field-sizing: content; max-height: 140px; padding: 9px 12px; border: 1px solid var(--muted); border-radius: 10px; background: var(--page); }
textarea::placeholder { color: var(--muted); opacity: 1; }
.send { border: 0; border-radius: 10px; padding: 10px 16px; background: var(--accent); color: var(--on-accent); font-weight: 600; }
.send:disabled { opacity: .55; cursor: default; }
@media (max-width: 480px) {
  .panel { inset: 0; width: auto; height: 100dvh; border: 0; border-radius: 0; }
  .panel ~ .launcher { display: none; }
}`;
