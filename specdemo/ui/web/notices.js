/*
 * Sentences above the page's lower edge: what of a link could not be used, and requests that failed. Why a job did not
 * begin is said where the job would be shown.
 *
 * It must be loaded before Gradio's scripts: their client says nothing when an event that does not wait in a queue fails,
 * so all of its requests pass through here.
 */

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

const UNREACHABLE = "Connection lost: the server could not be reached. Try again in a moment.";
/** Stands in what the page shows of a job that did not begin. */
const REFUSED = "{refused}";
/** Markup for a toast that is not to be seen; see page.css. */
const SAID = '<span class="said-elsewhere"></span>';
let refusal = UNREACHABLE;

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

/** The sentence as markup, which is how Gradio takes it. */
const escaped = (sentence) => sentence.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** Whether a request would have begun a job: what follows where such an event fails shows the sentence. */
function beginsJob(body) {
  const number = JSON.parse(body).fn_index;
  return window.gradio_config.dependencies.some((event) => event.trigger_after === number && event.js?.includes(REFUSED));
}

/** The values of what shows that a job did not begin, with the sentence that says why: as text, or in markup. */
function refused(values) {
  const said = (value) => (value === REFUSED ? refusal : value.replace(REFUSED, () => escaped(refusal)));
  return JSON.parse(JSON.stringify(values), (_, value) => (typeof value === "string" ? said(value) : value));
}

const send = window.fetch;
window.fetch = async (asked, ...options) => {
  const { pathname } = new URL(asked.url || asked, location.href);
  const [queued, direct] = [QUEUED, DIRECT].map((address) => address.test(pathname));
  const answer = await send(asked, ...options).catch((error) => {
    if (direct) add([UNREACHABLE]);
    if (!queued) throw error;
    return new Response(JSON.stringify({ detail: UNREACHABLE }), { status: 502 });
  });
  if (answer.ok || !(queued || direct)) return answer;
  const sentence = await sentenceOf(answer);
  if (direct) add([sentence]);
  const job = queued && beginsJob(options[0].body);
  if (job) refusal = sentence;
  const detail = job ? SAID : escaped(sentence);
  // Gradio has words of its own for some statuses.
  return new Response(JSON.stringify({ detail, error: detail }), { status: 500 });
};

window.SpecDemoNotices = { add, show, putAside, refused };
