// Signing in with a token, where the one-time address of the server was used or is not at hand.
import { post } from "./api.js";
import { html, useState } from "./html.js";

export function SignIn({ onSignedIn }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  async function send(event) {
    event.preventDefault();
    try {
      await post("sign-in", { token: token.trim() });
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
      ${error && html`<p class="fault" role="alert">${error}</p>`}
      <div><button class="primary">Sign in</button></div>
    </form>
  </main>`;
}
