/*
 * What the scripts of the page share: making and changing elements, and counting rounds.
 * Prompts and model text are untrusted: they only ever become text nodes.
 *
 * Rounds are as specdemo/view/race_value.py sends them; what is empty or false is left out.
 *
 * @typedef {{id: ?number, text: string, kind: string, position: number, p: ?number, q: ?number, acceptance: ?number,
 *   u: ?number, parent: ?number, branch: ?boolean, untested: ?boolean}} Token  `branch`: no part of what reads as a chain;
 *   `untested`: dropped without a look at it
 * @typedef {{lane: number, index: number, drafted: number, accepted: number, kept: number, seconds: number,
 *   stop: ?string, source: ?number, tokens: Token[], tree: ?boolean, first_guesses: ?number, streamed: ?boolean,
 *   pieces: ?boolean, residual: ?{id: number, text: string, p: number, q: number, share: number}[]}} Round
 *   `streamed`: a server's chunk and no round; `pieces`: of text, so that they are no tokens; `residual`: see rounds.py;
 *   `drafter`: which of several in a row drafted; `copied`: it copies
 */

/** What an arrow key means: a step forward or back. */
const ARROWS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
/** The phases in which a run has ended. */
const OVER = new Set(["done", "stopped", "error"]);
const VERDICT_ICONS = { identical: "✓", tie: "≈", diverged: "≠", sampled: "∼", lossy: "!", partial: "…" };
/** The beginning of a sentence, up to its first punctuation mark before a space: `llama.cpp` is one word. */
const FIRST_CLAUSE = /^(?:(?:[^.:;]|[.:;](?=\S))+(?=:(?:\s|$))|(?:[^,.:;]|[,.:;](?=\S))+)/;

/** A new element. Its text is never read as markup. */
function make(tag, className, parent, text, attributes) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined && text !== null) element.textContent = text;
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  if (parent) parent.append(element);
  return element;
}

/** Writes only a changed text: the same text in a new node would cause a new layout. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets a `data-` attribute, or removes it where there is no value; an unchanged one is not touched. */
function setData(element, key, value) {
  if (value === null || value === undefined || value === false) {
    if (key in element.dataset) delete element.dataset[key];
  } else if (element.dataset[key] !== String(value)) {
    element.dataset[key] = value;
  }
}

/** Text whose first part is bold: the part that `leading` matches. */
function setLead(element, text, leading) {
  if (element.textContent === text) return;
  const lead = (leading.exec(text) || [""])[0];
  element.replaceChildren(make("strong", "", null, lead), text.slice(lead.length));
}

/** A line of text with an icon, which is hidden while it has no text. */
class Notice {
  constructor(parent, role, className) {
    this.line = make("p", className, parent, null, { "data-role": role, role: "status" });
    this.icon = make("span", "race-icon", this.line, null, { "aria-hidden": "true" });
    this.text = make("span", "", this.line);
    this.line.hidden = true;
  }

  show(kind, icon, text) {
    this.line.hidden = !text;
    setData(this.line, "kind", text ? kind : null);
    setData(this.icon, "icon", icon || "");
    setLead(this.text, text || "", FIRST_CLAUSE);
  }

  /** @param {?{kind: string, text: string}} verdict on the outputs of the lanes */
  showVerdict(verdict) {
    this.show(verdict?.kind, VERDICT_ICONS[verdict?.kind], verdict?.text);
  }
}

const sum = (rounds, name) => rounds.reduce((total, round) => total + (round[name] || 0), 0);

/** What is counted of a lane. The prefill is no part of the decoding speed. @param {Round[]} rounds */
function count(rounds) {
  const [prefill, ...decoded] = rounds;
  const [emitted, drafted, accepted] = ["kept", "drafted", "accepted"].map((name) => sum(decoded, name));
  const last = rounds.at(-1);
  return {
    rounds: rounds.length, first: prefill?.kept, emitted, drafted, accepted, clock: last?.seconds ?? null, seconds: last ? last.seconds - prefill.seconds : 0, stop: last?.stop,
    streamed: rounds.some((round) => round.streamed), pieces: rounds.some((round) => round.pieces),
  };
}

const counted = (count, noun, plural = `${noun}s`) => `${count} ${count === 1 ? noun : plural}`;

/** The head of a card: the line, and its title; with a button where the card can be closed. */
function cardHead(parent, close) {
  const head = make("div", "race-card-head", parent);
  const title = make("h3", "", head);
  if (close) button(head, "apart-close", "Close", close);
  return [head, title];
}

/** A checkbox with its label. @returns {[HTMLElement, HTMLInputElement]} */
function toggle(parent, role, text, className = "race-toggle") {
  const label = make("label", className, parent);
  const box = make("input", "", label, null, { type: "checkbox", "data-role": role });
  label.append(text);
  return [label, box];
}

function button(parent, className, text, act, attributes) {
  const made = make("button", className, parent, text, { type: "button", ...attributes });
  made.addEventListener("click", act);
  return made;
}

/** Says on a button for a moment that it has done its work. */
function confirm(element, text) {
  element.dataset.said ??= element.textContent;
  element.textContent = text;
  setTimeout(() => { element.textContent = element.dataset.said; }, 1600);
}

/** Whether a key was pressed together with one that changes its meaning. */
const modified = (event) => event.ctrlKey || event.metaKey || event.altKey || event.shiftKey;

/** A function that gives the view of a root element, and makes it at the first call. */
function mounting(View) {
  const views = new WeakMap();
  return (root) => {
    if (!views.has(root)) views.set(root, new View(root));
    return views.get(root);
  };
}

window.SpecDemoDom = {
  ARROWS, OVER, Notice, button, cardHead, confirm, count, counted, make, modified, mounting, setData, setLead, setText, sum, toggle,
};
