// How the roles review the flow once the work is closed: the order, their findings, the feedback.
import { oneLine } from "../format.js";
import { html } from "../html.js";
import { Empty } from "../parts.js";
import { Graph } from "./graph.js";
import { STATES } from "./states.js";

export function Improvement({ flow, choose, role }) {
  const { mode, status, roles, edges, feedbackPath, feedbackConsent } = flow.improvement;
  const nodes = roles.map((each) => ({ id: each.role, role: each.role, state: each.state, reason: each.state === "pending" ? null : STATES[each.state][1], session: each.session }));
  return html`<div class="pad small row"><strong>${mode ?? "not chosen"}</strong><span class="muted">${status.replaceAll("_", " ")}</span>
      ${feedbackPath && html`<span>feedback ${feedbackConsent}: <code>${oneLine(feedbackPath)}</code></span>`}</div>
    ${!nodes.length && html`<${Empty}>${mode === "none" || status === "skipped" ? "The roles do not review the flow." : "Choose above how the roles review the flow."}<//>`}
    ${nodes.length > 0 && html`<${Graph} nodes=${nodes} edges=${edges} selected=${nodes.some((each) => each.id === role) ? role : null} onSelect=${choose} label="Order of the improvement" />
      <ul class="findings small">${roles.filter((each) => each.findings).map((each) => html`<li><strong>${oneLine(each.role)}</strong> <code>${oneLine(each.findings)}</code></li>`)}</ul>`}`;
}
