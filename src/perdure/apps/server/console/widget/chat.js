// The chat of a host page, in a shadow root: no style of the page reaches it, and none of it the page.
import { html, render, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { Markdown } from "../markdown.js";
import { safe } from "../format.js";
import { Conversation } from "./connection.js";
import { STYLE } from "./style.js";

/** Adds the chat to the page. The options are the `data-` attributes of its script. */
export function mount(options) {
  const host = document.createElement("perdure-chat");
  if (options.theme) host.dataset.theme = options.theme;
  const shadow = host.attachShadow({ mode: "open" });
  // A sheet made by script is no inline style: a strict policy of the page allows it.
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  shadow.adoptedStyleSheets = [sheet];
  document.body.append(host);
  const redraw = () => render(html`<${Chat} talk=${talk} title=${options.title ?? "Chat"} greeting=${options.greeting} />`, shadow);
  let isDue = false;
  const talk = new Conversation(options, () => {
    if (isDue) return;
    isDue = true;
    queueMicrotask(() => {
      isDue = false;
      redraw();
    });
  });
  redraw();
  return host;
}

function Chat({ talk, title, greeting }) {
  const [isOpen, setOpen] = useState(Boolean(talk.kept.isOpen));
  const launcher = useRef(null);
  const field = useRef(null);
  const wasOpened = useRef(false);
  const turn = (to) => {
    wasOpened.current = true;
    talk.keep({ isOpen: to });
    setOpen(to);
  };
  useEffect(() => {
    if (wasOpened.current) (isOpen ? field : launcher).current?.focus();
  }, [isOpen]);
  const onKey = (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    event.stopPropagation();
    turn(false);
  };
  return html`
    ${isOpen && html`<section class="panel" id="panel" role="dialog" aria-label=${title} onKeyDown=${onKey}>
      <header><h2>${title}</h2><button class="close" aria-label="Close the chat" onClick=${() => turn(false)}>×</button></header>
      <${Messages} talk=${talk} greeting=${greeting} />
      <${Composer} talk=${talk} field=${field} />
    </section>`}
    <button class="launcher" ref=${launcher} aria-expanded=${String(isOpen)} aria-controls="panel" aria-label=${isOpen ? `Close: ${title}` : `Open: ${title}`} onClick=${() => turn(!isOpen)}>
      <svg viewBox="0 0 24 24" aria-hidden="true"><path d="M4 4h16a2 2 0 0 1 2 2v9a2 2 0 0 1-2 2h-8l-5 4v-4H4a2 2 0 0 1-2-2V6a2 2 0 0 1 2-2z" /></svg>
    </button>`;
}

function Messages({ talk, greeting }) {
  const box = useRef(null);
  const isAtEnd = useRef(true);
  const pending = talk.waiting.filter((each) => !each.isSeen);
  useLayoutEffect(() => {
    if (isAtEnd.current) box.current.scrollTop = box.current.scrollHeight;
  });
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < 40;
  };
  const isWriting = talk.isRunning && talk.state === "live";
  // What is written letter by letter would be read out letter by letter: the log gets it when it is whole.
  return html`<div class="scroll" ref=${box} onScroll=${onScroll} tabindex="0" aria-label="Messages" role="group">
      <div class="log" role="log" aria-live="polite">
        ${greeting && html`<div class="message assistant"><${Markdown} text=${greeting} /></div>`}
        ${talk.items.map((item) => html`<${Message} key=${item.id} item=${item} />`)}
        ${pending.map((each) => html`<${Message} key=${each.key} item=${{ role: "user", text: each.text }} isPending=${!each.entry} />`)}
      </div>
      ${talk.live?.text ? html`<div class="message assistant live" aria-hidden="true"><${Markdown} text=${talk.live.text} /></div>`
        : isWriting && html`<div class="dots" aria-hidden="true"><i></i><i></i><i></i></div>`}
    </div>
    <p class=${talk.fault || talk.state === "waiting" ? "status" : "status quiet"} role="status">${statusOf(talk, isWriting)}</p>`;
}

function statusOf(talk, isWriting) {
  if (talk.fault) return safe(talk.fault);
  if (talk.state === "waiting") return "No connection. Trying again…";
  return isWriting ? "Writing an answer…" : "";
}

function Message({ item, isPending }) {
  const isPerson = item.role === "user";
  return html`<div class=${`message ${isPerson ? "user" : "assistant"} ${isPending ? "pending" : ""}`}>
    <span class="hidden">${isPerson ? "You:" : "Answer:"}</span>
    ${isPerson ? html`<p>${safe(item.text)}</p>` : html`<${Markdown} text=${item.text} />`}
    ${isPending && html`<span class="hidden">not sent yet</span>`}</div>`;
}

function Composer({ talk, field }) {
  const text = talk.draft;
  const send = (event) => {
    event?.preventDefault();
    if (!text.trim()) return;
    talk.send(text.trim());
    field.current.focus();
  };
  const onKey = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  };
  return html`<form onSubmit=${send}>
    <textarea ref=${field} rows="1" maxlength="8000" aria-label="Your message" placeholder="Write a message" value=${text}
      onInput=${(event) => talk.keep({ draft: event.target.value })} onKeyDown=${onKey}></textarea>
    <button class="send" type="submit" disabled=${!text.trim()}>Send</button></form>`;
}
