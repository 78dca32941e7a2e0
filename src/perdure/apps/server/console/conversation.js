// One conversation, live: messages, tools, questions, a composer; beside it the tree, turns, context.
import { get, lacking, patch, post, watch } from "./api.js";
import { Compaction } from "./compaction.js";
import { Composer } from "./composer.js";
import { Context } from "./context.js";
import { oneLine, seqOf } from "./format.js";
import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { Question } from "./inbox.js";
import { Message, resultsOf } from "./message.js";
import { Fault, State, Waiting, attempt, needing, useReads } from "./parts.js";
import { Timeline } from "./timeline.js";
import { Tree, newestBelow } from "./tree.js";

const PAGE = 50;
const SIDES = [["tree", "Tree"], ["turns", "Turns"], ["context", "Context"]];
const CHANGES_MESSAGES = /^(agent:message|agent:tool_(call|result)|agent:interrupted|session:(branched|adopted|compact|compaction_undone|branch_summarized|content_erased|labeled|pinned|queued))/;
const CHANGES_SESSION = /^(session:|agent:message$|agent:model_finished|inbox:|agent:approval)/;

/** The compactions `old`, with those of `page` in place of its own. */
const joined = (old, page) => {
  const isOfPage = new Set(page.items.map((each) => each.id));
  return [...old.filter((each) => !isOfPage.has(each.after)), ...page.compactions];
};

/** The messages of the active branch, kept up to date; `live` is what is being said now. */
function useConversation(id, target) {
  const [session, setSession] = useState(null);
  const [messages, setMessages] = useState(null);
  const [hasMore, setHasMore] = useState(false);
  const [compactions, setCompactions] = useState([]);
  const [questions, setQuestions] = useState([]);
  const [live, setLive] = useState(null);
  const [error, setError] = useState(null);
  const [connection, setConnection] = useState("waiting");
  const [version, setVersion] = useState(0);
  const path = `sessions/${encodeURIComponent(id)}`;

  const readMessages = useReads();
  const readSession = useReads();

  const refresh = useCallback(async () => {
    const isLate = readMessages();
    const page = await get(`${path}/messages`, { last: PAGE });
    if (isLate()) return;
    setCompactions((old) => joined(old, page));
    setMessages((old) => {
      const first = page.items[0]?.id;
      const at = old ? old.findIndex((each) => each.id === first) : -1;
      if (at <= 0) {
        setHasMore(page.hasMore);
        return page.items;
      }
      return [...old.slice(0, at), ...page.items];
    });
  }, [path]);
  const refreshSession = useCallback(async () => {
    const isLate = readSession();
    const [shown, inbox] = await Promise.all([get(path), get("inbox")]);
    if (isLate()) return;
    setSession(shown);
    setQuestions(inbox.items.filter((each) => each.session === id));
  }, [path, id]);
  const earlier = useCallback(async () => {
    const before = messages?.[0]?.id;
    if (!before) return;
    const page = await get(`${path}/messages`, { last: PAGE, before });
    setMessages((old) => [...page.items, ...old]);
    setCompactions((old) => joined(old, page));
    setHasMore(page.hasMore);
  }, [path, messages]);

  useEffect(() => {
    let stop = () => {};
    let isOver = false;
    const timers = {};
    const soon = (name, work, ms = 60) => {
      timers[name] ??= setTimeout(() => {
        delete timers[name];
        work().catch(setError);
      }, ms);
    };
    async function begin() {
      const shown = await get(path);
      await Promise.all([refresh(), refreshSession()]);
      if (isOver) return;
      stop = watch(`${path}/events`, shown.head, {
        state: setConnection,
        durable(event) {
          if (event.type === "agent:model_finished" || event.type === "agent:message") setLive(null);
          if (CHANGES_MESSAGES.test(event.type)) soon("messages", refresh);
          if (CHANGES_SESSION.test(event.type)) soon("session", refreshSession);
          soon("version", async () => setVersion((n) => n + 1), 400);
        },
        live(event) {
          if (event.type === "agent:tool_progress") return;
          const key = event.type === "agent:reasoning" ? "reasoning" : "text";
          setLive((old) => {
            const now = old?.of === event.of ? old : { of: event.of, text: "", reasoning: "" };
            return { ...now, [key]: now[key] + event.text };
          });
        },
        snapshot(event) {
          const parts = event.partial?.parts ?? [];
          const join = (type) => parts.filter((part) => part.type === type).map((part) => part.text).join("");
          setLive({ of: event.of, text: join("text"), reasoning: join("thinking") });
        },
      });
    }
    begin().catch(setError);
    return () => {
      isOver = true;
      Object.values(timers).forEach(clearTimeout);
      stop();
    };
  }, [path]);

  useEffect(() => {
    if (target === undefined || !messages || !hasMore) return;
    if (!messages.some((each) => seqOf(each.id) <= Number(target))) earlier().catch(setError);
  }, [messages, hasMore, target]);
  return { path, session, messages, compactions, hasMore, questions, live, error, connection, version, earlier, refresh, refreshSession };
}

export function Conversation({ id, target, side: wanted, call }) {
  const talk = useConversation(id, target);
  const { session, messages, error, path, live, questions } = talk;
  const [side, setSide] = useState(wanted ?? (innerWidth > 1100 ? "tree" : ""));
  useEffect(() => { if (wanted) setSide(wanted); }, [wanted, call]);
  const [chosen, setChosen] = useState(null);
  const state = live === null ? session?.state : "running";
  const isRunning = state === "running" || state === "waiting";

  const branch = useCallback((entry) => attempt(async () => {
    await post(`${path}/branch`, { entry });
    await Promise.all([talk.refresh(), talk.refreshSession()]);
  }), [path]);
  const toSibling = useCallback((entry) => attempt(async () => {
    const tree = await get(`${path}/tree`, { last: 20_000 });
    await branch(newestBelow(tree.items, entry));
  }), [path, branch]);
  const fork = useCallback((at) => attempt(async () => {
    const made = await post(`${path}/fork`, { at });
    location.hash = `#/sessions/${encodeURIComponent(made.id)}`;
  }), [path]);

  if (error && !messages) return html`<${Fault} error=${error} /><p class="empty"><a href="#/sessions">All sessions</a></p>`;
  if (!messages || !session) return html`<${Waiting} />`;
  return html`<${Head} session=${session} path=${path} connection=${talk.connection} side=${side} setSide=${setSide} refresh=${talk.refreshSession} />
    <div class=${`talk ${side ? "with-side" : ""}`}>
      <div class="column">
        <${Messages} ...${talk} target=${target} toSibling=${toSibling} fork=${fork} branch=${branch}
          state=${state} />
        ${lacking("write") ? html`<p class="composer muted small">${lacking("write")}</p>`
          : html`<${Composer} id=${id} path=${path} isRunning=${isRunning} state=${session.state} done=${talk.refreshSession} />`}
      </div>
      ${side && html`<aside class="side" aria-label=${side}>
        ${side === "tree" && html`<${Tree} path=${path} version=${talk.version} leaf=${session.leaf} branch=${branch} fork=${fork} chosen=${chosen} setChosen=${setChosen} />`}
        ${side === "turns" && html`<${Timeline} path=${path} version=${talk.version} />`}
        ${side === "context" && html`<${Context} path=${path} version=${talk.version} call=${call} />`}
      </aside>`}
    </div>`;
}

function Head({ session, path, connection, side, setSide, refresh }) {
  const rename = () => {
    const title = prompt("Title", session.title ?? session.name);
    if (title !== null) attempt(() => patch(path, { title: title.trim() || null })).then(refresh);
  };
  const act = (name, body, done) => () => attempt(() => post(`${path}/${name}`, body), done).then(refresh);
  return html`<header class="bar">
    <a href="#/sessions" aria-label="All sessions">←</a>
    <h1 class="truncate grow" title=${session.id}>${oneLine(session.name) || "Untitled"}</h1>
    <${State} state=${session.state} />
    ${connection === "waiting" && html`<span class="state waiting pulse" role="status">connecting</span>`}
    <span class="muted small mono wide">${oneLine([session.agent, session.model].filter(Boolean).join(" · "))}</span>
    ${session.state === "interrupted" && html`<button class="primary" ...${needing()} onClick=${act("resume", {}, "The turn goes on")}>Resume</button>`}
    <button class="quiet" ...${needing()} onClick=${rename}>Rename</button>
    <button class="quiet" ...${needing()} onClick=${act("compact", {}, "Compacted; the log keeps everything")}>Compact</button>
    ${session.state !== "ended" && html`<button class="quiet" ...${needing()} onClick=${act("end", {}, "Ended")}>End</button>`}
    <a class="small" href=${`v1/${path}/export?format=markdown`} download=${`${session.id}.md`}>Export</a>
    ${SIDES.map(([name, title]) => html`<button class="quiet" aria-pressed=${side === name} onClick=${() => setSide(side === name ? "" : name)}>${title}</button>`)}
  </header>`;
}

/** The seq of the message that shows the entry `target`: its own, or the last before a call or its outcome. */
const shownAt = (messages, target) => messages.reduce((found, each) => (seqOf(each.id) <= target ? seqOf(each.id) : found), null);

function Messages({ path, messages, compactions, hasMore, earlier, live, questions, target, toSibling, fork, branch, state }) {
  const box = useRef(null);
  const isAtEnd = useRef(true);
  const heightBefore = useRef(null);
  const targeted = useRef(null);
  const wanted = target === undefined ? null : shownAt(messages, Number(target));
  const results = resultsOf(messages);
  const waiting = new Set(questions.map((asked) => asked.question.call_id));
  useLayoutEffect(() => {
    if (heightBefore.current !== null) {
      box.current.scrollTop += box.current.scrollHeight - heightBefore.current;
      heightBefore.current = null;
    } else if (target !== undefined && targeted.current !== target) {
      const found = box.current.querySelector(`[data-seq="${wanted}"]`);
      if (found) {
        targeted.current = target;
        found.scrollIntoView({ block: "center" });
        isAtEnd.current = false;
      }
    } else if (isAtEnd.current) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  }, [messages, live, questions, target]);
  const more = () => {
    heightBefore.current = box.current.scrollHeight;
    earlier();
  };
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < 60;
  };
  return html`<div class="scroll" ref=${box} onScroll=${onScroll} tabindex="0" role="log" aria-label="Messages">
    <div class="messages">
      ${hasMore && html`<button class="quiet" onClick=${more}>Earlier messages</button>`}
      ${messages.length === 0 && !live && html`<p class="empty">Nothing was said yet. Write the first message below.</p>`}
      ${messages.map((message) => html`<${Message} key=${message.id} message=${message} results=${results} path=${path} state=${state} waiting=${waiting}
          isTarget=${seqOf(message.id) === wanted} toSibling=${toSibling} fork=${fork} branch=${branch} />
        ${compactions.filter((each) => each.after === message.id).map((each) => html`<${Compaction} key=${each.id} compaction=${each} path=${path} />`)}`)}
      ${live && html`<${Message} key="live" isLive message=${{ id: "live/0", role: "assistant", parts: [
        ...(live.reasoning ? [{ type: "thinking", text: live.reasoning }] : []), { type: "text", text: live.text }], at: null, siblings: [] }} results=${results} path=${path} />`}
      ${questions.map((asked) => html`<${Question} key=${asked.id} asked=${asked} hasFocus=${false} />`)}
    </div></div>`;
}
