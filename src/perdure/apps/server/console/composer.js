// Writing a message: it starts a turn, or steers the one that runs. The draft outlives a reload.
import { post } from "./api.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { attempt } from "./parts.js";

export function Composer({ id, path, isRunning, state, done }) {
  const key = `draft:${id}`;
  const [text, setText] = useState(() => sessionStorage.getItem(key) ?? "");
  const [isSending, setSending] = useState(false);
  const area = useRef(null);
  useEffect(() => { sessionStorage.setItem(key, text); }, [key, text]);

  async function send(event) {
    event?.preventDefault();
    if (!text.trim() || isSending) return;
    setSending(true);
    const sent = await attempt(() => post("messages", { sessionId: id, text }), isRunning ? "The running turn gets it with its next step" : undefined);
    setSending(false);
    if (sent) {
      setText("");
      done();
    }
    area.current?.focus();
  }
  function onKeyDown(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  }
  const stop = () => attempt(() => post(`${path}/abort`), "Stopped").then(done);
  return html`<div class="composer"><form onSubmit=${send}>
    <textarea ref=${area} rows="2" data-key="c" aria-label="Message" placeholder=${isRunning ? "Steer the running turn…" : state === "ended" ? "Write to open the session again…" : "Write a message…"}
      value=${text} onInput=${(e) => setText(e.target.value)} onKeyDown=${onKeyDown}></textarea>
    <div class="row"><button class="primary" disabled=${isSending || !text.trim()}>${isRunning ? "Steer" : "Send"}</button>
      ${isRunning && html`<button type="button" class="danger" data-key="x" onClick=${stop}>Stop</button>`}
      <span class="muted small wide"><kbd>Enter</kbd> sends, <kbd>Shift Enter</kbd> makes a line</span></div>
  </form></div>`;
}
