/*
 * Parts of the race view: the scrolling text of a lane, the legend, and the table of figures.
 *
 * Nothing here asks for the layout while text is added: the area is a column in reverse order, which the browser itself
 * keeps at its end.
 */

const { ARROWS, make, modified, toggle } = window.SpecDemoDom;
const { KINDS, records, unnamed } = window.SpecDemoTips;
const LEGEND = [
  ["accepted", "drafted, kept"], ["corrected", "by the target"], ["bonus", "free token"],
  ["rejected", "drafted, dropped"], ["streamed", "kind not told"],
];
const KEYS = { ...ARROWS, Home: 1, End: -1 };

/**
 * One token. Its kind is shown on its visible characters only: a coloured space at the end of a line would look
 * like a mark of its own.
 */
function tokenElement(token, marks) {
  const element = make("span", "t t-" + (token.kind in KINDS ? token.kind : "target") + marks);
  const body = token.text.trim();
  if (!body) {
    const look = unnamed(token) ? "k block" : token.text.includes("\n") ? "k nl" : token.text ? "k" : "k empty";
    make("span", look, element, token.text);
    return element;
  }
  const [before, after] = token.text.split(body, 2);
  if (before) element.append(before);
  make("span", before ? "k sp" : "k", element, body);
  if (after) element.append(after);
  return element;
}

/** The rejected token that a corrected token replaces: in a tree the first guess of its position. */
function replacedBy(token, round) {
  if (token.kind !== "corrected") return null;
  return round.tokens.find((other) => other.kind === "rejected" && other.position === token.position
    && other.parent === token.parent);
}

/**
 * The element that a drafted token was copied from, if it was copied. A copy that reaches the end of the text
 * starts again at its own beginning. `places` holds the elements of the prompt and of the output so far.
 */
function copiedFrom(token, round, places) {
  const drafted = token.kind === "accepted" || token.kind === "rejected";
  if (!drafted || typeof round.source !== "number" || places.length <= round.source) return null;
  return places[round.source + ((token.position - 1) % (places.length - round.source))];
}

/** `add` collects tokens, and `flush` inserts them: for all lanes together, once a frame. */
class Area {
  constructor(parent, hint, tip) {
    this.area = make("div", "race-tokens", parent, null, {
      "data-role": "tokens", "data-hint": hint, tabindex: 0, role: "group",
    });
    this.text = make("div", "race-text");
    this.tip = tip;
    this.elements = [];
    /** Of the prompt and of the output, where the prompt is shown: sources count from its first token. */
    this.places = [];
    /** How many of them are the prompt's. */
    this.prompted = 0;
    this.waiting = [];
    /** Of each round: its end on the lane's clock, and how many elements were before it. */
    this.ends = [];
    this.marked = [];
    this.listen();
  }

  /** Shows the prompt above the output, so that tokens copied from it can point at it. @param {string[]} pieces */
  showPrompt(pieces) {
    if (this.prompted) return;
    this.prompted = pieces.length;
    const prompt = make("div", "race-prompt", null, null, { "data-role": "prompt" });
    this.places = pieces.map((piece) => make("span", "", prompt, piece));
    this.text.prepend(prompt);
    this.area.append(this.text);
  }

  /**
   * Its first element is marked as the boundary, and so is the first kept one: the boundary must stay visible when
   * rejected tokens are hidden.
   *
   * @param {Round} round  @param {boolean} boundary whether to mark where the round begins
   */
  add(round, boundary) {
    this.ends.push([round.seconds, this.elements.length]);
    const { places } = this;
    const firstKept = round.tokens.findIndex((token) => token.kind !== "rejected");
    const elements = round.tokens.map((token, i) => {
      const begins = !boundary ? "" : (i === 0 ? " first" : "") + (i === firstKept ? " first-kept" : "");
      const element = tokenElement(token, begins + (token.branch ? " t-branch" : ""));
      records.set(element, {
        token, round, rule: this.rule, index: this.elements.length + i,
        dropped: replacedBy(token, round),
        from: copiedFrom(token, round, places),
        ends: round.stop === "eos" && i === round.tokens.length - 1,
      });
      return element;
    });
    this.elements.push(...elements);
    if (this.prompted) places.push(...elements.filter((_, i) => round.tokens[i].kind !== "rejected"));
    this.waiting.push(...elements);
  }

  /** Drops all rounds. */
  clear() {
    for (const element of this.elements.splice(0)) element.remove();
    this.places.length = this.prompted;
    this.ends = [];
    if (!this.prompted) this.text.remove();
  }

  flush() {
    if (!this.waiting.length) return;
    this.text.append(...this.waiting);
    this.waiting = [];
    if (!this.text.parentNode) this.area.append(this.text);
  }

  /** Marks the round that a moment belongs to. @param {?number} seconds  @param {boolean} scroll so that it is seen */
  mark(seconds, scroll) {
    for (const element of this.marked) element.classList.remove("moment");
    const i = seconds === null ? -1 : this.ends.findIndex(([end]) => end >= seconds - 1e-9);
    this.marked = i < 0 ? [] : this.elements.slice(this.ends[i][1], this.ends[i + 1]?.[1]);
    for (const element of this.marked) element.classList.add("moment");
    if (!scroll || !this.marked.length) return;
    const [seen, spot] = [this.area, this.marked[0]].map((element) => element.getBoundingClientRect());
    if (spot.top < seen.top || spot.bottom > seen.bottom) this.area.scrollTop += spot.top - seen.top - seen.height / 2;
  }

  /** Mouse, touch, keys and scrolling: one listener each, however many tokens there are. */
  listen() {
    const { area, tip } = this;
    const token = (event) => event.target.closest(".t");
    area.addEventListener("pointerover", (event) => {
      if (event.pointerType === "touch") return;
      if (token(event)) tip.show(token(event), false);
      else if (!tip.byKey) tip.hide();
    });
    area.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && tip.hide());
    area.addEventListener("click", (event) => (token(event) ? tip.show(token(event), false) : tip.hide()));
    area.addEventListener("keydown", (event) => this.onKey(event));
    area.addEventListener("blur", () => tip.hide());
    // The text moves away below the tooltip.
    area.addEventListener("scroll", () => tip.isIn(area) && (tip.byKey ? tip.place() : tip.hide()), { passive: true });
  }

  onKey(event) {
    const { tip } = this;
    if (event.key === "Escape" && tip.element) {
      event.stopPropagation();
      tip.hide();
    }
    if (!KEYS[event.key] || modified(event)) return;
    event.preventDefault();
    const element = this.keyTarget(event.key);
    if (!element) return;
    tip.show(element, true);
    if (element === this.elements.at(-1)) this.area.scrollTop = 0; // the end, which the area follows from there
    else element.scrollIntoView({ block: "nearest" });
    tip.place();
  }

  /** The token that a key leads to: left and right by token, up and down by round, without hidden ones. */
  keyTarget(key) {
    const { elements, tip } = this;
    const step = KEYS[key];
    const here = tip.isIn(this.area) && key !== "Home" && key !== "End" ? records.get(tip.element) : null;
    const sameRound = (element) => here && (key === "ArrowUp" || key === "ArrowDown")
      && records.get(element).round === here.round;
    let i = here ? here.index + step : step > 0 ? 0 : elements.length - 1;
    while (elements[i] && (!elements[i].getClientRects().length || sameRound(elements[i]))) i += step;
    return elements[i] || null;
  }
}

/** Explains the kinds of tokens, and has the box, seen once there are some, that hides the rejected ones. Returns its element. */
function buildLegend(frame, tip) {
  const legend = make("div", "race-legend", frame);
  for (const [kind, meaning] of LEGEND) {
    const entry = make("span", "race-key", legend, null, { "data-kind": kind });
    make("span", "k-" + kind, entry, kind);
    entry.append(" " + meaning);
    entry.hidden = kind === "streamed"; // until there is one
  }
  const [, box] = toggle(legend, "show-rejected", "show rejected", "race-toggle rejected-toggle");
  box.checked = true;
  box.addEventListener("change", () => {
    tip.hide();
    frame.classList.toggle("hide-rejected", !box.checked);
  });
  return legend;
}

/** The folded table of all figures; a figure's formula stands under its name, and in the row's tooltip. */
class Figures {
  constructor(parent, role) {
    this.card = make("details", "race-card race-figures", parent);
    make("summary", "", this.card, "All figures, and how they are computed");
    this.table = make("table", "", this.card, null, { "data-role": role });
    this.card.hidden = true;
  }

  /** @param {string[]} titles of the columns  @param {{label: string, formula: string, values: string[]}[]} rows */
  show(titles, rows) {
    this.card.hidden = !rows.length;
    if (!rows.length) return;
    const head = make("tr");
    for (const name of ["", ...titles]) make("th", "", head, name, { scope: "col" });
    this.table.replaceChildren(head, ...rows.map((row) => {
      const line = make("tr", "", null, null, { title: row.formula });
      make("small", "", make("th", "", line, row.label, { scope: "row" }), row.formula);
      for (const value of row.values) make("td", "", line, value);
      return line;
    }));
  }
}

window.SpecDemoTokens = { Area, Figures, buildLegend };
