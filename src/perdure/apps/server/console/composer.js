// Writing a message, with images: it starts a turn, or steers the one that runs. The draft outlives a reload.
import { post } from "./api.js";
import { bytes, oneLine } from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { attempt, toast } from "./parts.js";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const MOST_BYTES = 7_000_000; // with base64 a request stays below the 10 MB of the server
const MOST_IMAGES = 16;

/** The images that go with the next message: [{file, url}], and the functions that add and remove. */
function useImages(id) {
  const [images, setImages] = useState([]);
  const latest = useRef(images);
  latest.current = images;
  const forget = (some) => some.forEach((each) => URL.revokeObjectURL(each.url));
  useEffect(() => () => {
    forget(latest.current);
    setImages([]);
  }, [id]);
  function add(files) {
    const wanted = [...files].filter((file) => IMAGES.has(file.type));
    if (wanted.length < files.length) toast("Only PNG, JPEG, GIF and WebP images can be sent");
    const size = [...latest.current.map((each) => each.file), ...wanted].reduce((so, file) => so + file.size, 0);
    if (size > MOST_BYTES) return toast(`These are ${bytes(size)}; a message takes ${bytes(MOST_BYTES)} of images`);
    if (latest.current.length + wanted.length > MOST_IMAGES) return toast(`A message takes ${MOST_IMAGES} images`);
    return setImages([...latest.current, ...wanted.map((file) => ({ file, url: URL.createObjectURL(file) }))]);
  }
  function remove(some) {
    forget(some);
    setImages((old) => old.filter((each) => !some.includes(each)));
  }
  return { images, add, remove };
}

const base64 = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
  reader.onerror = () => reject(new Error(`${file.name || "The image"} cannot be read`));
  reader.readAsDataURL(file);
});

const contentsOf = (images) => Promise.all(images.map(async ({ file }) => ({
  data: await base64(file), mimeType: file.type, name: file.name.slice(0, 255) || null,
})));

export function Composer({ id, path, isRunning, state, done }) {
  const key = `draft:${id}`;
  const [text, setText] = useState(() => sessionStorage.getItem(key) ?? "");
  const [isSending, setSending] = useState(false);
  const [isOver, setOver] = useState(false);
  const { images, add, remove } = useImages(id);
  const area = useRef(null);
  const chooser = useRef(null);
  useEffect(() => { sessionStorage.setItem(key, text); }, [key, text]);
  const isEmpty = !text.trim() && !images.length;

  async function send(event) {
    event?.preventDefault();
    if (isEmpty || isSending) return;
    setSending(true);
    const sent = await attempt(async () => post("messages", { sessionId: id, text, contents: await contentsOf(images) }),
      isRunning ? "The running turn gets it with its next step" : undefined);
    setSending(false);
    if (sent) {
      setText("");
      remove(images);
      done();
    }
    area.current?.focus();
  }
  function onKeyDown(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  }
  function onPaste(event) {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    add(event.clipboardData.files);
  }
  const hasFiles = (event) => [...event.dataTransfer.types].includes("Files");
  function onDragOver(event) {
    if (!hasFiles(event)) return;
    event.preventDefault();
    setOver(true);
  }
  function onDrop(event) {
    setOver(false);
    if (!hasFiles(event)) return;
    event.preventDefault();
    add(event.dataTransfer.files);
  }
  function onChoose(event) {
    add(event.target.files);
    event.target.value = "";
    area.current?.focus();
  }
  const stop = () => attempt(() => post(`${path}/abort`), "Stopped").then(done);
  return html`<div class=${`composer ${isOver ? "over" : ""}`} onDragOver=${onDragOver} onDragLeave=${() => setOver(false)} onDrop=${onDrop}><form onSubmit=${send}>
    ${images.length > 0 && html`<ul class="attached" aria-label="Images of the message">${images.map((each) => html`<li key=${each.url}>
      <img src=${each.url} alt=${oneLine(each.file.name) || "pasted image"} title=${`${oneLine(each.file.name)} ${bytes(each.file.size)}`} />
      <button type="button" aria-label=${`Remove ${oneLine(each.file.name) || "the image"}`} onClick=${() => remove([each])}>×</button></li>`)}</ul>`}
    <textarea ref=${area} rows="2" data-key="c" aria-label="Message" placeholder=${isRunning ? "Steer the running turn…" : state === "ended" ? "Write to open the session again…" : "Write a message…"}
      value=${text} onInput=${(e) => setText(e.target.value)} onKeyDown=${onKeyDown} onPaste=${onPaste}></textarea>
    <div class="row"><button class="primary" disabled=${isSending || isEmpty}>${isRunning ? "Steer" : "Send"}</button>
      <button type="button" onClick=${() => chooser.current.click()}>Add image</button>
      <input ref=${chooser} type="file" accept=${[...IMAGES].join(",")} multiple hidden aria-label="Images" onChange=${onChoose} />
      ${isRunning && html`<button type="button" class="danger" data-key="x" onClick=${stop}>Stop</button>`}
      <span class="muted small wide"><kbd>Enter</kbd> sends, <kbd>Shift Enter</kbd> makes a line; paste or drop images</span></div>
  </form></div>`;
}
