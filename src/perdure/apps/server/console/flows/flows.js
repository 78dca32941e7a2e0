// All flows in one list, and starting one: a workflow file, a takeover, or a new project.
import { get, watch } from "../api.js";
import { count, oneLine, shortTime, wholeTime } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Rows } from "../list.js";
import { Empty, Fault, Waiting, needing, useLoaded } from "../parts.js";
import { Start } from "./start.js";
import { STATES, runWords } from "./states.js";

const link = (flow) => `#/flows/${encodeURIComponent(flow.id)}`;

export function Flows() {
  const { data, error, reload } = useLoaded((signal) => get("flows", {}, signal), []);
  const [selected, setSelected] = useState(-1);
  const [isStarting, setStarting] = useState(false);
  useEffect(() => {
    let timer = null;
    const stop = watch("events", undefined, {
      durable(event) {
        if (!event.flowId && !/^(inbox:|agent:approval)/.test(event.type)) return;
        timer ??= setTimeout(() => {
          timer = null;
          reload();
        }, 400);
      },
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, []);
  const flows = data?.items;
  return html`<header class="bar"><h1 class="grow">Flows</h1><button class="primary" ...${needing("admin")} onClick=${() => setStarting(true)}>Start a flow</button></header>
    ${isStarting && html`<${Start} close=${() => setStarting(false)} />`}
    ${error && html`<${Fault} error=${error} retry=${reload} />`}
    ${!flows && !error && html`<${Waiting} />`}
    ${flows?.length === 0 && html`<${Empty}><p>No flows yet.</p><p class="small">A flow lets several roles work on one task and asks you where they need you.</p><//>`}
    ${flows?.length > 0 && html`<${Rows} label="Flows" count=${flows.length} height=${52} selected=${selected} onSelect=${setSelected}
      onOpen=${(n) => { location.hash = link(flows[n]); }}
      row=${(n, style, isSelected) => html`<${Row} key=${flows[n].id} n=${n} flow=${flows[n]} style=${style} isSelected=${isSelected} />`} />`}`;
}

function Row({ n, flow, style, isSelected }) {
  const [kind, words] = runWords(flow, flow.waits);
  return html`<a class="list-row flow-row" id=${`row-${n}`} role="option" aria-selected=${isSelected} tabindex="-1" style=${style} href=${link(flow)}>
    <span class="what"><span class="truncate">${oneLine(flow.name)}</span><span class="truncate muted small">${oneLine(flow.workspace)}</span></span>
    <span><span class=${`state ${kind}`}>${words}${flow.waits > 1 ? ` (${count(flow.waits)})` : ""}</span></span>
    <span class="wide small counts">${Object.entries(flow.nodes).filter(([, number]) => number > 0).map(([state, number]) => html`<span class=${`dot ${state}`} title=${STATES[state][1]}>${STATES[state][0]} ${count(number)}</span> `)}</span>
    <time class="wide muted small" title=${wholeTime(flow.startedAt)}>${shortTime(flow.startedAt)}</time></a>`;
}
