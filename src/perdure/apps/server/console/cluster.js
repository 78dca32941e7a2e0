// The workers and queues of the namespace; what is stuck stands first.
import { get } from "./api.js";
import { count, duration, oneLine } from "./format.js";
import { html, useEffect } from "./html.js";
import { Empty, Fault, Waiting, useLoaded } from "./parts.js";

const EVERY_MS = 5_000;

export function Cluster() {
  const { data, error, reload } = useLoaded((signal) => get("cluster", {}, signal), []);
  useEffect(() => {
    const timer = setInterval(reload, EVERY_MS);
    return () => clearInterval(timer);
  }, [reload]);
  return html`<header class="bar"><h1>Cluster</h1><button onClick=${reload}>Refresh</button></header>
    <div class="scroll pad stack">
      ${error?.status === 403 ? html`<p class="muted">Workers and queues are shown to the role admin.</p>` : error && html`<${Fault} error=${error} retry=${reload} />`}
      ${!data && !error && html`<${Waiting} />`}
      ${data && !data.isShared && html`<p class="muted">Turns of this store run in this server. Several machines share a store on PostgreSQL.</p>`}
      ${data?.isShared && html`<${Stuck} queues=${data.queues} /><${Queues} queues=${data.queues} /><${Workers} workers=${data.workers} />
        <section class="card stack"><h2>Since the database was made</h2><p>${counts(data.counts)}</p></section>`}
    </div>`;
}

const isStuck = (queue) => queue.waiting > 0 && queue.servedBy.length === 0;
const seconds = (value) => (value === null ? "" : duration(value * 1_000));

function counts(all) {
  const found = Object.entries(all).map(([name, number]) => `${name.replaceAll("_", " ")} ${count(number)}`);
  return found.join(", ") || "no takeover";
}

function Stuck({ queues }) {
  const stuck = queues.filter(isStuck);
  if (!stuck.length) return null;
  return html`<section class="card stack" role="status"><h2>Stuck</h2>
    ${stuck.map((queue) => html`<p><span class="state error">stuck</span> ${count(queue.waiting)} ${queue.waiting === 1 ? "turn waits" : "turns wait"} for a worker with the agent <b>${oneLine(queue.agent)}</b> and its tools, the oldest for ${seconds(queue.oldestS)}.</p>`)}
  </section>`;
}

function Queues({ queues }) {
  return html`<section class="card stack"><h2>Queues</h2>
    ${queues.length === 0 ? html`<${Empty}>No turn was queued in this namespace yet.<//>` : html`<div class="table" tabindex="0" role="region" aria-label="Queues"><table>
      <thead><tr><th>Agent</th><th class="number">Waiting</th><th class="number">Oldest</th><th class="number">Running</th><th class="number">Scheduled</th><th class="number">Workers</th></tr></thead>
      <tbody>${queues.map((queue) => html`<tr><td>${oneLine(queue.agent)}</td><td class="number">${count(queue.waiting)}</td><td class="number nowrap">${seconds(queue.oldestS)}</td>
        <td class="number">${count(queue.running)}</td><td class="number">${count(queue.scheduled)}</td><td class="number">${isStuck(queue) ? "none: stuck" : count(queue.servedBy.length)}</td></tr>`)}</tbody></table></div>`}</section>`;
}

function Workers({ workers }) {
  return html`<section class="card stack"><h2>Workers</h2>
    ${workers.length === 0 ? html`<${Empty}>No worker runs. Start one: <code>perdure worker MODULE:FACTORY</code>.<//>` : html`<div class="table" tabindex="0" role="region" aria-label="Workers"><table>
      <thead><tr><th>Id</th><th>State</th><th class="number">Running</th><th class="number">Slots</th><th class="number">Up</th><th class="number">Silent</th><th>Version</th><th>Agents</th><th>Process</th></tr></thead>
      <tbody>${workers.map((worker) => html`<tr><td class="mono nowrap">${oneLine(worker.id)}</td><td><span class=${`state ${worker.state === "alive" ? "good" : "error"}`}>${worker.state}</span></td>
        <td class="number">${count(worker.running)}</td><td class="number">${count(worker.slots)}</td><td class="number nowrap">${seconds(worker.upS)}</td><td class="number nowrap">${seconds(worker.silentS)}</td>
        <td>${oneLine(worker.version)}</td><td>${worker.agents.map(oneLine).join(", ")}</td><td class="mono nowrap">${oneLine(worker.owner)}</td></tr>`)}</tbody></table></div>`}</section>`;
}
