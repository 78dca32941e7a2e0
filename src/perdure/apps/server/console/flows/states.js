// How nodes and edges stand, in words and symbols.
import { oneLine } from "../format.js";

/** State of a node -> its symbol and its words. */
export const STATES = {
  pending: ["○", "pending"],
  active: ["●", "at work"],
  waiting: ["?", "waits for you"],
  backward: ["↩", "waits for better work"],
  completed: ["✓", "completed"],
};

/** A node in one sentence, for screen readers and as a hint. */
export const titleOf = (node) => [node.id, node.role, STATES[node.state][1], node.reason].filter(Boolean).map(oneLine).join(", ");

const TOLD = { plain: "nothing handed over yet", done: "handed over", unread: "handed over, not read yet", back: "sent back" };

export const toldOf = (edge) => `${oneLine(edge.from)} → ${oneLine(edge.to)}: ${TOLD[edge.state]}${edge.artifact ? ` (${oneLine(edge.artifact)})` : ""}`;

/** The class and the words of the state of a run, of which `waits` wait for a person. */
export function runWords({ status, isRunning }, waits) {
  if (status === "completed") return ["", "completed"];
  if (waits > 0) return ["waiting", "waits for you"];
  return isRunning ? ["running", "running"] : ["interrupted", "no process runs it"];
}
