// Starting a flow: of a workflow file, of an existing project (takeover), or of a new one (greenfield).
import { get, post } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { useModal } from "../parts.js";

const KINDS = [
  ["workflow", "Workflow", "Runs the workflow of a file."],
  ["takeover", "Take over a project", "The owner reads an existing project, asks you, and writes its roles and its workflow."],
  ["greenfield", "New project", "The owner asks what the project is to become, and writes its roles and its workflow."],
];
const CONSENT = ["no-access", "partial-access", "full-access"];
const CONFIGURING = [["given", "as given"], ["ask", "ask me for each role"], ["auto", "a model chooses"]];

export function Start({ close }) {
  const box = useModal(close);
  const [values, setValues] = useState(() => ({ mode: "workflow", workspace: localStorage.getItem("flow-folder") ?? "", workflow: "workflow.yaml", recordFolder: "", consent: "partial-access", configuring: "given" }));
  const [error, setError] = useState("");
  const [isSending, setSending] = useState(false);
  const [projects, setProjects] = useState([]);
  useEffect(() => {
    get("projects").then((page) => {
      setProjects(page.items);
      setValues((old) => ({ ...old, workspace: old.workspace || page.items[0] || "" }));
    }, (refused) => setError(refused.message));
  }, []);
  const set = (name) => (event) => setValues((old) => ({ ...old, [name]: event.target.value }));
  async function start(event) {
    event.preventDefault();
    setSending(true);
    setError("");
    try {
      const made = await post("flows", { ...values, workspace: values.workspace.trim(), recordFolder: values.recordFolder.trim() || null });
      localStorage.setItem("flow-folder", values.workspace);
      box.current.close();
      location.hash = `#/flows/${encodeURIComponent(made.id)}`;
    } catch (refused) {
      setError(refused.message);
      setSending(false);
    }
  }
  const choice = (name, options) => html`<select value=${values[name]} onChange=${set(name)}>${options.map(([value, words]) => html`<option value=${value}>${words}</option>`)}</select>`;
  return html`<dialog ref=${box} aria-label="Start a flow"><form class="pad stack start" onSubmit=${start}>
    <h1>Start a flow</h1>
    <div class="row" role="radiogroup" aria-label="What it does">${KINDS.map(([kind, title]) => html`<label class="row"><input type="radio" name="mode" value=${kind} checked=${values.mode === kind} onChange=${set("mode")} /> ${title}</label>`)}</div>
    <p class="muted small">${KINDS.find(([kind]) => kind === values.mode)[2]}</p>
    <label>Folder of the project, on the server<input class="mono" required value=${values.workspace} onInput=${set("workspace")} list="projects" placeholder="/home/me/project" />
      <datalist id="projects">${projects.map((each) => html`<option value=${each} />`)}</datalist></label>
    ${values.mode === "workflow" && html`<label>Workflow file in it<input class="mono" required value=${values.workflow} onInput=${set("workflow")} /></label>`}
    <label>Record folder in it<input class="mono" value=${values.recordFolder} onInput=${set("recordFolder")} placeholder=".perdure/records/…" /></label>
    <div class="row side-by-side"><label>Consent${choice("consent", CONSENT.map((name) => [name, name]))}</label>
      <label>Models and skills${choice("configuring", CONFIGURING)}</label></div>
    ${error && html`<div class="fault" role="alert"><span>${error}</span></div>`}
    <div class="row"><button class="primary" disabled=${isSending}>${isSending ? "Starting…" : "Start"}</button><button type="button" class="quiet" onClick=${() => box.current.close()}>Cancel</button></div>
  </form></dialog>`;
}
