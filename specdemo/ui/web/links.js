/*
 * Links to the page in its present state: writes the controls' values into the address bar and copies the address.
 *
 * The state stands behind the "#" of the address, which no request carries: Gradio's client sends what stands behind
 * the "?" along with each of its requests, and servers refuse long addresses. Links of earlier versions have the state
 * behind the "?"; it is moved before Gradio's scripts begin. Texts that are too long for a link are kept with the entry
 * of the browser's history, which a reload leaves as it is.
 *
 * `SpecDemoLinkTable` holds the parameters by which the server reads links. The contents of a link are untrusted.
 *
 * @typedef {{name: string, kind: string, default: *, element: string, choices: string[], field: string}} Field
 */

const { confirm, make, setData, setText } = window.SpecDemoDom;
const notices = window.SpecDemoNotices;
/** `brought`: by parameter and text ("*" for any other), what further parameters begin with. */
const { fields, brought, longest } = window.SpecDemoLinkTable;
const SPACE = "https://huggingface.co";
/** Milliseconds without a change before the address is written; browsers refuse to have it written too often. */
const PAUSE = 300;
/** Milliseconds in which changes are taken for one: a pair brings a dozen. */
const TOGETHER = 100;
/** What the page calls the texts that may be too long. */
const LONG = {
  prompt: "prompt", target: "name of the target", draft: "name of the draft",
  "sweep.own": "list of prompts of the sweep", "batch.own": "list of prompts of the batch",
};
const THEME = "__theme";
const byName = (valueOf, some = fields) => Object.fromEntries(some.map((field, i) => [field.name, valueOf(field, i)]));
/** What a page without a link says. */
const PLAIN = { page: byName((field) => field.default, fields.filter((field) => !field.element)), notices: [] };
/** The parameter that names the texts that a link leaves out, for whoever opens it. */
const WITHOUT = "without";

/** The values of the page's controls, by name; null until the link was read. */
let held = null;
/** The values that no control holds, by name: the tab, the view, the recording. */
const extra = {};
let timer = 0;
let looking = 0;
/** The button that starts a run and was pressed before the link was read. */
let pressedFirst = null;
/** What follows once an opened link is read. */
let next = null;

// ---- the query -----------------------------------------------------------------------------------------------

/** A value as text, before it is escaped; null for a field that was emptied. */
function encode(field, value) {
  if (field.kind === "text") return (value || "").replace(/\p{Surrogate}/gu, "\uFFFD");
  if (value === null || value === undefined) return null;
  if (field.kind === "switch") return value ? "1" : "0";
  if (field.kind === "several") return field.choices.filter((name) => value.includes(name)).join(",");
  return field.kind === "choice" ? String(value) : String(Number(Number(value).toFixed(4)));
}

/** The values that are not those with which the page begins, as texts by name. */
function differing(values = { ...held, ...extra }) {
  const texts = new Map();
  const begins = byName((field) => field.default);
  for (const field of fields) {
    const text = encode(field, values[field.name]);
    const usual = begins[field.name];
    if (text !== null && (usual === null || text !== encode(field, usual))) texts.set(field.name, text);
    Object.assign(begins, brought[field.name]?.[text] ?? brought[field.name]?.["*"]);
  }
  return texts;
}

/** The query for values by name, and the names of the texts that it leaves out as too long. */
function toQuery(values, most = longest) {
  const parts = new Map([...differing(values)].map(([name, text]) => [name, encodeURIComponent(text)]));
  const left = [];
  const length = () => [...parts].reduce((sum, [name, text]) => sum + name.length + text.length + 2, 0);
  while (length() > most) {
    const long = fields.filter((field) => field.kind === "text" && parts.has(field.name))
      .reduce((a, b) => (parts.get(b.name).length > parts.get(a.name).length ? b : a)).name;
    parts.delete(long);
    left.push(long);
  }
  return { query: [...parts].map(([name, text]) => `${name}=${text}`).join("&"), left };
}

/** What a link to the page as it stands says, and the texts that it leaves out, by name. */
function now() {
  const values = { ...held, ...extra };
  const { query, left } = toQuery(values);
  const hash = [query, left.length && `${WITHOUT}=${left}`].filter(Boolean).join("&");
  return { hash: hash && "#" + hash, long: Object.fromEntries(left.map((name) => [name, values[name]])) };
}

/** What a race depends on, as a query; null before the link was read. */
function race() {
  if (!held) return null;
  const ofRace = ({ name }) => /^(lane\d\.)?[a-z-]+$/.test(name) && !(name in extra);
  return toQuery(byName((field) => (ofRace(field) ? held[field.name] : field.default)), Infinity).query;
}

// ---- the address ---------------------------------------------------------------------------------------------

/** The parts of the address that Gradio and a Space keep there for themselves, perhaps of one name; as a query. */
function theirs(name = "__") {
  const parts = location.search.slice(1).split("&").filter((part) => part.startsWith(name));
  return parts.length ? "?" + parts.join("&") : "";
}

/** Notices about the opened link, before the server's. */
const unsaid = [];

/** What parts of an address say, as texts by name. */
function textsOf(...parts) {
  const read = (part) => [...new URLSearchParams(part.slice(1))];
  const { [WITHOUT]: without, ...texts } = Object.fromEntries(parts.flatMap(read));
  for (const name of (without || "").split(",").filter((part) => part in LONG && !history.state?.long?.[part])) {
    unsaid.push(`The ${LONG[name]} was too long for this link, which leaves it out.`);
    texts[name] ??= ""; // no other stands in for it
  }
  return { ...history.state?.long, ...texts };
}

/** What the page was opened with. */
const opened = textsOf(location.search, location.hash);

if (theirs() !== location.search) {
  const parts = location.search.slice(1).split("&").filter((part) => !part.startsWith("__"));
  const hash = [...parts, location.hash.slice(1)].filter(Boolean).join("&");
  history.replaceState({ ...history.state }, "", location.pathname + theirs() + (hash && "#" + hash));
} else if (!history.state) history.replaceState({}, ""); // an entry without a state is one that a person typed

// A link that is put into the address bar of the open page changes nothing but what stands behind the "#".
window.addEventListener("hashchange", () => { if (!history.state) location.reload(); });

function write() {
  clearTimeout(timer);
  timer = 0;
  if (!held) return;
  const { hash, long } = now();
  setData(document.documentElement, "linked", hash ? "yes" : null);
  tellLeft(Object.keys(long));
  const { long: before, ...state } = history.state || {};
  if (hash === location.hash && JSON.stringify(before || {}) === JSON.stringify(long)) return;
  history.replaceState({ ...state, long }, "", location.pathname + theirs() + hash);
  if (window.parent !== window) window.parent.postMessage({ queryString: "", hash }, SPACE);
}

/** Says under the buttons what does not fit into it. */
function tellLeft(names) {
  const row = document.getElementById("text-buttons");
  const line = row.parentElement.querySelector(".link-left") || make("p", "link-left", null, null, { role: "status" });
  const text = names.map((name) => `The ${LONG[name]} is too long for a link, which leaves it out.`).join(" ");
  setText(line, text);
  if (text) row.after(line); // under Run, which must not move while somebody aims at it
  else line.remove();
}

/** The controls changed. @param {Array} values in the order of the fields */
function changed(values) {
  if (!held) return; // the link has not been read yet
  // Of a text the server hears when it is left: each key would send all that was written.
  const typed = document.activeElement?.matches("textarea, input");
  const differs = (field, i) => field.element && !(typed && field.kind === "text") && `${held[field.name]}` !== `${values[i]}`;
  if (fields.some(differs)) looking ||= setTimeout(look, TOGETHER);
  held = byName((_, i) => values[i]);
  remember();
}

function remember() {
  document.dispatchEvent(new Event("specdemo-link"));
  timer ||= setTimeout(write, PAUSE); // not put off by further changes, which may come without end
}

/** Lets the server say what the page would do with the controls as they are. */
function look() {
  looking = 0;
  document.getElementById("panel-look").click();
}

/** A value that no control holds changed. */
function set(name, value) {
  extra[name] = value;
  if (held) remember();
}

// ---- copying -------------------------------------------------------------------------------------------------

/** The address for others: without what a Space added for this visitor, such as the key to a private Space. */
const address = () => location.origin + location.pathname + theirs(THEME) + now().hash;

/** On pages that are not served over https, browsers offer no clipboard: there the text is selected and copied. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = make("textarea", "link-field", document.body, text, { readonly: "" });
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

/** Copies the link, and says so on the button for a moment. */
async function copy() {
  if (!held) return;
  write();
  const text = address();
  if (await copied(text)) confirm(document.getElementById("copy-link"), "Copied");
  else notices.show([`This browser does not let a page copy. The link: ${text}`]);
}

// ---- from the server -----------------------------------------------------------------------------------------

/** Sets the page, as it stands, to what a link says, then does what follows; what the link does not say stays. */
function open(link, then = null) {
  if (!held) return;
  next = then;
  window.SpecDemoLinks.opened = textsOf(`#${toQuery(held, Infinity).query}`, link);
  keepStill(true);
  document.getElementById("link-read").click();
}

/** Controls do not take what a person does while a link is on its way, which says what they hold. */
function keepStill(waiting) {
  for (const element of document.querySelectorAll(`${fields.filter((f) => f.element).map((f) => "#" + f.element)}, .chip, #add-lane`)) {
    element.inert = waiting;
  }
}

/** The page stands. The server reads its link; without one, the controls hold what the page begins with. */
function begin(values) {
  if (!Object.keys(opened).length) {
    ready(PLAIN, values);
    return;
  }
  keepStill(true);
  document.getElementById("link-read").click();
}

/**
 * The link was read, and the controls hold what it says.
 * @param {?{page: Object<string, *>, held: Object<string, *>, notices: string[]}} said nothing where a request failed
 * @param {Array} values in the order of the fields
 */
function ready(said, values) {
  keepStill(false);
  held = { ...byName((_, i) => values[i]), ...said?.held };
  Object.assign(extra, { ...said?.page, ...extra }); // what a person changed meanwhile is newer
  notices.add(said ? [...unsaid, ...said.notices] : ["This link could not be read: reload the page."]);
  remember();
  if (said !== PLAIN) looking ||= setTimeout(look, TOGETHER);
  window.SpecDemoPanel.dim();
  if (extra.view === "talk") window.SpecDemoTalk.enter();
  pressedFirst?.removeAttribute("aria-busy");
  pressedFirst?.click();
  next?.();
  pressedFirst = next = null;
  if (said?.page.recording && extra.recording === said.page.recording) openRecording(said.page); // unless Run was pressed first
  if (extra.autorun) document.getElementById("link-start").click();
}

/** Opens the link's recording. In the talk view it waits for the speaker. */
function openRecording(page) {
  const player = window.SpecDemoPlayer.mount(document.querySelector("#race .race-root"));
  player.opening = { speed: page.speed, waits: page.view === "talk" };
  document.getElementById(`recording-${page.recording}`).click();
}

/** The server has decided whether the run starts at once. @param {{start: boolean, notices: string[]}} said */
function decided(said) {
  notices.add(said.notices);
  // Unless a person was quicker.
  if (said.start && extra.autorun) document.querySelector(`#run-row .on-${document.documentElement.dataset.tab}`).click();
}

// A press of Run or of a recording changes what a link would show.
document.addEventListener("click", (event) => {
  const pressed = event.target.closest?.("#run-row .start, #gallery > button");
  if (!pressed) return;
  if (event.isTrusted) set("autorun", false); // pressed by a person, so the page is no longer what the link began
  set("recording", Number(/^recording-(\d+)$/.exec(pressed.id)?.[1] || 0));
  if (!pressed.matches(".start")) return;
  notices.putAside();
  if (held) return;
  // The controls do not say yet what is to run, so the press waits for that.
  event.stopImmediatePropagation();
  pressedFirst = pressed;
  pressed.setAttribute("aria-busy", "true");
}, true);

/** Whether the controls have the values of the link. */
const wasRead = () => held !== null;

window.SpecDemoLinks = {
  opened, open, begin, differing, toQuery, race, changed, set, ready, wasRead, decided, copy, address, value: (name) => held?.[name],
};
