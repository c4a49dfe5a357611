/*
 * Sentences above the page's lower edge: what of a link could not be used, and requests that failed.
 */

const { make } = window.SpecDemoDom;
/** For statuses that come from what stands between page and server, without a sentence of the server's own. */
const SENTENCES = {
  413: "This is too large to be sent: shorten the prompt or the list of prompts.",
  414: "The address of this page is too long: open it without what stands behind the “?”.",
  429: "Too many requests were sent from here: wait a minute and try again.",
  503: "The server is busy: wait a minute and try again.",
};

const UNREACHABLE = "Connection lost: the server could not be reached. Try again in a moment.";
/** Markup for a toast that is not to be seen; see page.css. */
const SAID = '<span class="said-elsewhere"></span>';

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

/** What Gradio's client gets in place of a failed answer, which is said here. @param {?Response} answer none where none came */
async function failed(answer) {
  add([answer ? await sentenceOf(answer) : UNREACHABLE]);
  return new Response(JSON.stringify({ detail: SAID, error: SAID }), { status: 500 });
}

window.SpecDemoNotices = { add, show, putAside, failed };
