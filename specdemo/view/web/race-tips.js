/*
 * What pointing shows: the details of a token, the formula of a figure, and one moment of the lanes' clocks in the
 * text, the chart and the timeline at once. By the pointer, by touch, and by the keyboard.
 */

const { ARROWS, make, modified } = window.SpecDemoDom;

const KINDS = {
  target: "by the target", accepted: "accepted: drafted, kept", corrected: "corrected by the target",
  bonus: "bonus: a free token", rejected: "rejected: drafted, dropped", streamed: "from a server, its kind not told",
};
const UNNAMED = "the server counts its rejected tokens and does not say which they were";

/** Whether a server counted this rejected token without saying which it was. */
const unnamed = (token) => token.kind === "rejected" && token.id === undefined && !token.text;

/** Two decimals; more only where two would give 0. */
function formatProbability(p) {
  if (p >= 0.01 || p === 0) return p.toFixed(2);
  return p < 0.0001 ? "<0.0001" : p.toPrecision(1);
}

/** A text with its whitespace made visible. */
function visible(text) {
  const marks = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
  return text.replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length)).replace(/[\n\r\t]/g, (c) => marks[c]);
}

/** The probabilities that are known, with their names. */
const numbers = (named, mark, format = formatProbability) => Object.entries(named)
  .filter(([, value]) => typeof value === "number").map(([name, value]) => `${name} ${format(value)}`).join(mark);

const percent = (share) => `${share && share < 0.095 ? (100 * share).toFixed(1) : Math.round(100 * share)} %`;

/** What the rules say of a guess that is the target's own token, and of one that is not. */
const MATCHES = {
  exact: ["the target’s best token too: kept", "the target’s best is ", "the target’s best token"],
  "token match": ["the target drew the same: kept", "the target drew ", "the target’s own draw"],
};

/** Why a token was kept, dropped or written by the lane's rule, as strings and quoted texts; null where that is not known. */
function reason(token, round, rule) {
  const { kind, u, acceptance } = token;
  const [kept, drafted] = [kind === "accepted", kind === "accepted" || kind === "rejected"];
  if (drafted && typeof acceptance !== "number") return null;
  if (MATCHES[rule]) {
    const [same, other, own] = MATCHES[rule];
    if (!drafted) return kind === "corrected" || kind === "bonus" ? [own] : null;
    const best = round.tokens.find((t) => t.kind !== "rejected" && t.position === token.position && t.parent === token.parent);
    return kept ? [same] : [other, { quote: best?.text || "" }, ": dropped"];
  }
  const drawn = kind === "corrected" && round.residual?.find(({ id }) => id === token.id);
  if (drawn) return [`drawn from max(p − q, 0), with a chance of ${percent(drawn.share)}`];
  if (!drafted || (rule !== "sampling" && rule !== "naive")) return null;
  const [bound, fate] = [rule === "naive" ? "p" : round.tree ? "its chance" : "min(1, p/q)", kept ? "kept" : "dropped"];
  if (typeof u !== "number") return [`${bound} = ${formatProbability(acceptance)}, the number drawn is not recorded: ${fate}`];
  let digits = 2; // as many as tell the two apart
  while (digits < 5 && u.toFixed(digits) === acceptance.toFixed(digits)) digits++;
  return [`drawn ${u.toFixed(digits)}, ${kept ? "below" : "not below"} ${bound} = ${acceptance.toFixed(digits)}: ${fate}`];
}

/** The lines of a token's tooltip; each is a list of strings and of quoted texts. */
function tipLines({ token, round, rule, dropped, from, ends }) {
  const text = token.text ? { quote: token.text } : ends ? "end of text"
    : unnamed(token) ? "a drafted token" : "part of a character";
  const why = reason(token, round, rule) || [];
  const by = round.drafter ? `, by ${round.drafter}` : "";
  const of = round.tree ? ` (tree of ${round.drafted}${by})` : round.drafted ? ` (γ ${round.drafted}${by})` : "";
  const lines = [
    [text, " · " + KINDS[token.kind]],
    [!round.index ? "round 0, the prompt’s own pass" : round.streamed ? "" : `round ${round.index}, position ${token.position}${of}`],
    [numbers({ "target p": token.p, "draft q": token.q, acceptance: why.length ? null : token.acceptance }, " · ")],
    why,
  ];
  if (from) lines.push(["copied from the marked place"]);
  if (unnamed(token)) lines.push([UNNAMED]);
  else if (token.untested) lines.push([round.tree ? "dropped: its branch was left" : "dropped: an earlier token of this round was rejected"]);
  if (dropped && unnamed(dropped)) {
    lines.push(["in place of a drafted token, which the server does not name"]);
  } else if (dropped) {
    const odds = numbers({ p: dropped.p, q: dropped.q }, ", ");
    lines.push(["drafted ", { quote: dropped.text }, `${odds && ": " + odds}, rejected`]);
  }
  lines.push([`${token.id === undefined ? "" : `id ${token.id} · `}${round.seconds.toFixed(3)} s on the lane’s clock`]);
  return lines.filter((line) => line[0]);
}

/** The nodes of a line. Quoted text may run from right to left, so it is isolated from the rest. */
const texts = (parts) => parts.flatMap((part) => (typeof part === "string" ? part : ["“", make("bdi", "", null, visible(part.quote)), "”"]));

/** The text of one lane. */
const AREA = '[data-role="tokens"]';
/** What is known of each token's element: see race-tokens.js. */
const records = new WeakMap();

/** Puts a tooltip above a spot, or below it where there is no space above, and never past an edge. */
function place(tip, frame, spot) {
  const around = frame.getBoundingClientRect();
  const right = Math.min(document.documentElement.clientWidth - 8, around.right) - tip.offsetWidth;
  const left = Math.max(8, around.left, Math.min(spot.left - 8, right));
  const above = spot.top - tip.offsetHeight - 8;
  const [x, y] = [left - around.left, (above >= 4 ? above : spot.bottom + 8) - around.top].map(Math.round);
  tip.style.transform = `translate(${x}px, ${y}px)`;
}

/** The only tooltip of a view's tokens. It lies over the page and moves nothing. */
class Tip {
  static count = 0;

  constructor(frame) {
    this.frame = frame;
    this.box = make("div", "race-tip", frame, null, {
      role: "tooltip", id: `race-tip-${++Tip.count}`, "data-role": "tip",
    });
    this.box.hidden = true;
    this.spoken = make("div", "race-spoken", frame, null, { "aria-live": "polite" });
    this.element = null;
    this.source = null;
    this.byKey = false;
    window.addEventListener("resize", () => this.hide());
    document.addEventListener("pointerdown", (event) => {
      if (!event.target.closest(AREA)) this.hide();
    });
  }

  /** @param {boolean} byKey whether a key led to the token: then the tooltip is also read aloud, and stays */
  show(element, byKey) {
    if (this.element === element) return;
    this.hide();
    this.element = element;
    this.byKey = byKey;
    element.classList.add("current");
    this.source = records.get(element).from;
    this.source?.classList.add("source");
    element.closest(AREA).setAttribute("aria-describedby", this.box.id);
    this.box.replaceChildren();
    for (const parts of tipLines(records.get(element))) make("div", "", this.box).append(...texts(parts));
    this.box.hidden = false;
    if (byKey) this.spoken.textContent = this.box.innerText;
    this.place();
    this.announce(element);
  }

  /** Says which token is pointed at, for the other places where it and its moment are shown. */
  announce(element) {
    this.frame.dispatchEvent(new CustomEvent("race-token", { detail: element && records.get(element) }));
  }

  hide() {
    if (!this.element) return;
    this.announce(null);
    this.element.classList.remove("current");
    this.source?.classList.remove("source");
    this.element.closest(AREA)?.removeAttribute("aria-describedby");
    this.element = null;
    this.box.hidden = true;
  }

  isIn(area) {
    return area.contains(this.element);
  }

  place() {
    place(this.box, this.frame, this.element.querySelector(".k").getClientRects()[0] || this.element.getBoundingClientRect());
  }
}

/** Marks the moment of a token, or of a place in a chart, in all lanes and charts of a view. */
class Moment {
  /** @param {View} view  @param {Element[]} hosts of charts that have lane seconds on their x axes */
  constructor(view, hosts) {
    this.view = view;
    this.lines = new Map(hosts.map((host) => [host, make("i", "race-now", host.parentElement, null, { hidden: "" })]));
    view.frame.addEventListener("race-token", ({ detail }) => this.mark(detail && detail.round.seconds, null));
    for (const host of hosts) {
      host.addEventListener("pointermove", (event) => this.point(host, event.clientX));
      host.addEventListener("pointerleave", () => this.mark(null, host));
    }
  }

  /** Follows the pointer over a chart. */
  point(host, clientX) {
    const axis = host._fullLayout?.xaxis;
    if (!axis) return;
    const seconds = axis.p2l(clientX - host.getBoundingClientRect().left - axis._offset);
    this.mark(seconds >= 0 && seconds <= axis.range[1] ? seconds : null, host);
  }

  /** @param {?number} seconds  @param {?Element} from the chart that was pointed at; null for a token */
  mark(seconds, from) {
    for (const [host, line] of this.lines) {
      const axis = host._fullLayout?.xaxis;
      line.hidden = seconds === null || !axis || seconds > axis.range[1];
      if (!line.hidden) line.style.left = `${host.offsetLeft + axis._offset + axis.l2p(seconds)}px`;
    }
    for (const { text } of this.view.lanes) text.mark(seconds, from !== null && this.view.over); // what grows does not scroll
  }
}

// ---- formulas ------------------------------------------------------------------------------------------------

// A view gives a figure its formula as `title`, which browsers show to a mouse only; what is pointed at, touched or
// reached by keys has it moved to `data-formula` and shown here. Tab stops once at the figures of a lane, of a table
// or of the head, and the arrow keys go from one to the next.
const FIGURES = ".specdemo-race :is([title], [data-formula]):not(button, select, q)";
const ID = "race-formula";
let shown = null;

const figureAt = (target) => target.closest?.(FIGURES) || null;

function hideFormula() {
  document.getElementById(ID)?.remove();
  shown?.removeAttribute("aria-describedby");
  shown = null;
}

function showFormula(figure) {
  if (figure === shown) return;
  hideFormula();
  if (!figure) return;
  if (figure.title) {
    figure.dataset.formula = figure.title;
    figure.removeAttribute("title");
  }
  const frame = figure.closest(".specdemo-race");
  const tip = make("div", "race-tip race-formula", frame, figure.dataset.formula, { id: ID, role: "tooltip" });
  place(tip, frame, figure.getBoundingClientRect());
  figure.setAttribute("aria-describedby", ID);
  shown = figure;
}

const groupOf = (figure) => figure.closest("section, table, .specdemo-race");
const figuresOf = (group) => [...group.querySelectorAll(FIGURES)].filter((figure) => groupOf(figure) === group);

/** Makes a figure the one of its group at which Tab stops. */
function makeStop(figure) {
  for (const each of figuresOf(groupOf(figure))) each.tabIndex = each === figure ? 0 : -1;
}

document.addEventListener("pointerover", (event) => { if (event.pointerType !== "touch") showFormula(figureAt(event.target)); });
document.addEventListener("focusin", (event) => showFormula(figureAt(event.target)));
document.addEventListener("focusout", hideFormula);
document.addEventListener("click", (event) => showFormula(figureAt(event.target)));
document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (key === "Escape") hideFormula();
  if (ARROWS[key] && target.matches?.(FIGURES) && !modified(event)) {
    const all = figuresOf(groupOf(target));
    const next = all[all.indexOf(target) + ARROWS[key]] || target;
    makeStop(next);
    next.focus();
    event.preventDefault(); // the player has the arrows elsewhere
  }
  // Figures are made anew for each run, so they become stops of the keyboard when it is used.
  if (key !== "Tab") return;
  for (const figure of document.querySelectorAll(FIGURES)) if (!figure.hasAttribute("tabindex")) makeStop(figure);
}, true);

window.SpecDemoTips = { Tip, Moment, KINDS, formatProbability, numbers, percent, reason, records, texts, unnamed, visible };
