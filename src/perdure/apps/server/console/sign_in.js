// Signing in with a token, where the one-time address of the server was used or is not at hand.
import { loadRole, post } from "./api.js";
import { html, useState } from "./html.js";

const USED = "This address signs in once, within 15 minutes: it was used, it expired, or another server printed it. "
  + "Restart perdure serve for a new address, or paste a token.";

/** `codeError` is the error of the one-time address that was opened, if there is one. */
export function SignIn({ codeError, onSignedIn }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const notice = error || (codeError && (codeError.code === "code_invalid" ? USED : codeError.message));
  async function send(event) {
    event.preventDefault();
    try {
      await post("sign-in", { token: token.trim() });
      await loadRole();
      onSignedIn();
    } catch (refused) {
      setError(refused.message);
    }
  }
  return html`<main class="sign-in stack">
    <h1>Sign in</h1>
    <p class="muted">Open the address that <code>perdure serve</code> printed, or paste a token of <code>perdure token create</code>.</p>
    <form class="stack" onSubmit=${send}>
      <label class="stack">Token
        <input type="password" autocomplete="off" value=${token} onInput=${(e) => setToken(e.target.value)} required />
      </label>
      ${notice && html`<p class="fault" role="alert">${notice}</p>`}
      <div><button class="primary">Sign in</button></div>
    </form>
  </main>`;
}
