// The conversation of one visitor: what was said, what waits to be sent, and the connection for both.
// What waits is in the page's session storage with its key, so that a reload sends it again, once.

const PAUSE_MS = 500;
const MOST_PAUSE_MS = 8_000;
const SILENCE_MS = 40_000;
const CLOSED = "This page may not use the chat any more. Reload the page to try again.";
const UNKNOWN = "It is unknown whether your message arrived. Send it again if no answer comes.";
const GONE = "This conversation no longer exists. Your message is below: send it to begin another.";

const isClosed = (response) => response.status === 401 || response.status === 403;

export class Conversation {
  /** `changed` is called after each change of `items`, `live`, `isRunning`, `state` or `fault`. */
  constructor({ root, agent, token, tokenUrl, session }, changed) {
    this.items = [];
    this.live = null;
    this.isRunning = false;
    this.state = "live";
    this.fault = "";
    this.root = root;
    this.agent = agent;
    this.token = token;
    this.tokenUrl = tokenUrl;
    this.given = session;
    this.changed = changed;
    this.place = `perdure:${root}:${agent ?? ""}:${session ?? ""}`;
    this.kept = this.read();
    this.last = -1;
    this.pause = PAUSE_MS;
    this.isSending = false;
    addEventListener("online", () => this.wake());
    addEventListener("offline", () => {
      if (this.state !== "closed") this.set({ state: "waiting" });
    });
    if (this.session) this.watch();
    this.flush();
  }

  get session() {
    return this.given ?? this.kept.session;
  }

  get waiting() {
    return this.kept.waiting;
  }

  /** What is written and not sent; a message that was refused is in it again. */
  get draft() {
    return this.kept.draft ?? "";
  }

  set(values) {
    Object.assign(this, values);
    this.changed();
  }

  read() {
    try {
      return { waiting: [], ...JSON.parse(sessionStorage.getItem(this.place) ?? "{}") };
    } catch {
      return { waiting: [] };
    }
  }

  keep(values) {
    Object.assign(this.kept, values);
    try {
      sessionStorage.setItem(this.place, JSON.stringify(this.kept));
    } catch {
      // A page without storage keeps the conversation until it is left.
    }
    this.changed();
  }

  send(text) {
    const key = crypto.randomUUID?.() ?? random();
    this.fault = "";
    this.keep({ draft: "", waiting: [...this.waiting, { key, text, session: null }] });
    this.flush();
  }

  /** Sends what waits, in order. Each request stays the same until it was answered. */
  async flush() {
    if (this.isSending) return;
    this.isSending = true;
    try {
      while (this.waiting.some((each) => !each.entry)) await this.sendNext();
    } finally {
      this.isSending = false;
    }
  }

  async sendNext() {
    const next = this.waiting.find((each) => !each.entry);
    if (next.session === null && this.session) {
      next.session = this.session;
      this.keep({});
    }
    const body = { text: next.text, ...(next.session ? { sessionId: next.session } : {}) };
    let response;
    try {
      response = await this.fetch("v1/messages", {
        method: "POST",
        headers: { "Content-Type": "application/json", "Idempotency-Key": next.key },
        body: JSON.stringify(body),
      });
    } catch {
      await this.rest();
      return;
    }
    if (response.status === 408 || response.status === 429 || response.status >= 500) {
      await this.rest(Number(response.headers.get("retry-after") ?? 0) * 1_000);
      return;
    }
    const found = await response.json().catch(() => ({}));
    if (!response.ok) {
      this.refuse(response, found);
      return;
    }
    next.entry = true;
    this.pause = PAUSE_MS;
    this.keep({ session: found.sessionId, waiting: this.waiting.filter((each) => each !== next || !next.isSeen) });
    this.set({ state: "live" });
    if (!this.isWatching) this.watch();
  }

  /** Puts what waits into the composer again, and says why: nothing that was written is lost. */
  refuse(response, { code, detail }) {
    const isGone = (response.status === 410 || response.status === 404) && !this.given;
    const texts = this.waiting.filter((each) => !each.entry && !each.isSeen).map((each) => each.text);
    this.keep({
      draft: [...texts, this.draft].filter(Boolean).join("\n"),
      waiting: this.waiting.filter((each) => each.entry),
    });
    if (isGone) this.forget();
    if (isClosed(response)) this.close();
    else if (code === "outcome_unknown") this.set({ state: "live", fault: texts.length ? UNKNOWN : "" });
    else this.set({ state: "live", fault: isGone ? GONE : `Your message was not sent: ${detail ?? "it was refused"}. Send it again, or change it.` });
  }

  /** The token is refused: only another message, or a reload of the page, tries it again. */
  close() {
    this.live = null;
    this.set({ state: "closed", fault: CLOSED });
  }

  /** The session is gone; the next message begins another. */
  forget() {
    this.items = [];
    this.last = -1;
    this.keep({ session: undefined, waiting: this.waiting.map((each) => ({ ...each, session: null })) });
  }

  async fetch(path, options) {
    const again = async (isFresh) => {
      if (this.tokenUrl && (isFresh || !this.token)) {
        const made = await fetch(this.tokenUrl, { cache: "no-store" });
        if (isClosed(made)) return made;
        if (!made.ok) throw new Error("the page gives no token");
        this.token = (await made.text()).trim();
      }
      const headers = { ...options.headers, Authorization: `Bearer ${this.token}` };
      return fetch(new URL(path, this.root), { ...options, headers, credentials: "omit", cache: "no-store" });
    };
    const response = await again(false);
    return response.status === 401 && this.tokenUrl ? again(true) : response;
  }

  /** Watches the session until it is gone; a broken stream goes on after its newest durable event. */
  async watch() {
    this.isWatching = true;
    while (this.session) {
      try {
        if (await this.stream()) break;
      } catch {
        this.set({ state: "waiting" });
      }
      await this.rest();
    }
    this.isWatching = false;
  }

  /** Reads one stream to its end. Returns whether it is of no use to try again. */
  async stream() {
    const session = this.session;
    const stopping = new AbortController();
    this.stop = () => stopping.abort();
    let silence = setTimeout(this.stop, SILENCE_MS);
    try {
      const headers = this.last >= 0 ? { "Last-Event-ID": String(this.last) } : {};
      const path = `v1/sessions/${encodeURIComponent(session)}/events`;
      const response = await this.fetch(path, { headers, signal: stopping.signal });
      if (response.status === 404 || response.status === 410) {
        if (!this.given) this.forget();
        return true;
      }
      if (isClosed(response)) {
        this.close();
        return true;
      }
      if (!response.ok) throw new Error(`status ${response.status}`);
      this.pause = PAUSE_MS;
      this.set({ state: "live" });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return false;
        clearTimeout(silence);
        silence = setTimeout(this.stop, SILENCE_MS);
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) this.take(block);
        this.changed();
      }
    } finally {
      clearTimeout(silence);
    }
  }

  take(block) {
    const fields = {};
    for (const line of block.split("\n")) {
      const at = line.indexOf(": ");
      if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
    }
    if (!fields.data) return;
    const event = JSON.parse(fields.data);
    if (fields.event === "durable") {
      if (event.sequenceNumber <= this.last) return;
      this.durable(event);
      if (fields.id !== undefined) this.last = Number(fields.id);
    } else if (fields.event === "snapshot") {
      this.live = { of: event.of, n: event.n, text: event.text };
    } else if (fields.event === "live") {
      const isNew = this.live?.of !== event.of;
      if (isNew) this.live = { of: event.of, n: 0, text: "" };
      if (event.n <= this.live.n) return;
      this.live = { of: event.of, n: event.n, text: this.live.text + event.text };
    }
  }

  durable(event) {
    if (event.type === "session:turn_started") this.isRunning = true;
    if (event.type === "session:turn_completed") {
      this.isRunning = false;
      this.live = null;
      if (event.isFailed) this.fault = "There was no answer. Please try again.";
    }
    if (event.type !== "agent:message") return;
    if (event.role === "assistant") this.live = null;
    if (event.role === "user") {
      const sent = this.waiting.find((each) => each.text === event.text);
      if (sent?.entry) this.keep({ waiting: this.waiting.filter((each) => each !== sent) });
      else if (sent) sent.isSeen = true;
    }
    if (event.text) this.items = [...this.items, { id: event.entryId, role: event.role, text: event.text }];
  }

  wake() {
    this.set({ state: this.session ? this.state : "live" });
    this.pause = PAUSE_MS;
    this.stop?.();
    this.wakeUp?.();
  }

  rest(least = 0) {
    this.set({ state: "waiting" });
    const pause = Math.max(this.pause, least);
    this.pause = Math.min(this.pause * 2, MOST_PAUSE_MS);
    return new Promise((resolve) => {
      setTimeout(resolve, pause);
      this.wakeUp = resolve;
    });
  }
}

function random() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");
}
