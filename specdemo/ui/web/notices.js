/*
 * Sentences above the page's lower edge: what of a link could not be used, and requests that failed.
 *
 * A plain script that defines `window.SpecDemoNotices`. It must be loaded before Gradio's scripts: their client says
 * nothing when an event that does not wait in a queue fails, so all of its requests pass through here.
 */
(function () {
  "use strict";

  const { make } = window.SpecDemoDom;
  /** Events: those that Gradio queues, whose errors it shows, and the others. */
  const QUEUED = /\/gradio_api\/queue\/join$/;
  const DIRECT = /\/gradio_api\/run\/[^/]+$/;
  /** For statuses that come from what stands between page and server, without a sentence of the server's own. */
  const SENTENCES = {
    413: "This is too large to be sent: shorten the prompt or the list of prompts.",
    414: "The address of this page is too long: open it without what stands behind the “?”.",
    429: "Too many requests were sent from here: wait a minute and try again.",
    503: "The server is busy: wait a minute and try again.",
  };

  const box = () => document.querySelector(".link-notices");

  /** Shows sentences, those of before too, until they are closed. They only ever become text nodes. */
  function add(lines) {
    const fresh = lines.filter((line) => ![...(box()?.querySelectorAll("p") || [])].some((p) => p.textContent === line));
    if (!fresh.length) return;
    if (!box()) {
      const made = make("div", "link-notices", document.body, null, { role: "status" });
      make("button", "", made, "×", { type: "button", "aria-label": "Close" }).addEventListener("click", () => made.remove());
    }
    for (const line of fresh) box().lastChild.before(make("p", "", null, line));
  }

  /** Shows these sentences only. */
  function show(lines) {
    box()?.remove();
    add(lines);
  }

  /** Puts the sentences under Run, where they cover nothing that a run shows. */
  function putAside() {
    if (box()) document.getElementById("run-dock").append(box());
  }

  /** What a failed answer says, in a sentence. @param {Response} answer */
  async function sentenceOf(answer) {
    const said = await answer.clone().json().catch(() => null);
    const own = [said?.detail, said?.error].find((text) => typeof text === "string" && text);
    return own || SENTENCES[answer.status] || `The server answered with an error (${answer.status}): reload the page and try again.`;
  }

  const send = window.fetch;
  window.fetch = async (asked, ...options) => {
    const answer = await send(asked, ...options);
    const { pathname } = new URL(asked.url || asked, location.href);
    if (answer.ok || !(QUEUED.test(pathname) || DIRECT.test(pathname))) return answer;
    const sentence = await sentenceOf(answer);
    if (DIRECT.test(pathname)) add([sentence]);
    // Gradio takes the sentence of a queued event from here, as markup.
    const escaped = sentence.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`);
    return new Response(JSON.stringify({ detail: escaped, error: escaped }), { status: answer.status });
  };

  window.SpecDemoNotices = { add, show, putAside };
})();
