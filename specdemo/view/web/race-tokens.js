/*
 * What views of traces share: the text of a lane with its tokens, the tooltip that explains one of them, what is
 * copied from it, the legend, and the table of figures.
 *
 * A plain script that defines `window.SpecDemoTokens`, loaded before race.js. Prompts and model text are
 * untrusted: they only ever become text nodes.
 *
 * @typedef {{id: number, text: string, kind: string, round: number, position: number, p: ?number, q: ?number,
 *   acceptance: ?number, seconds: number}} Token
 * @typedef {{lane: number, index: number, drafted: number, accepted: number, seconds: number, stop: ?string,
 *   source: ?number, tokens: Token[]}} Round
 */
(function () {
  "use strict";

  const KINDS = {
    target: "by the target", accepted: "accepted: drafted, kept", corrected: "corrected by the target",
    bonus: "bonus: a free token", rejected: "rejected: drafted, dropped", streamed: "from a server, its kind not told",
  };
  const LEGEND = [
    ["accepted", "drafted, kept"], ["corrected", "by the target"], ["bonus", "free token"],
    ["rejected", "drafted, dropped"], ["streamed", "kind not told"],
  ];
  const UNNAMED = "the server counts its rejected tokens and does not say which they were";
  const KEYS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: 1, End: -1 };

  /** What each token's element stands for. */
  const records = new WeakMap();
  let serial = 0;

  /** A new element. Its text is never read as markup. */
  function make(tag, className, parent, text, attributes) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined && text !== null) element.textContent = text;
    for (const name in attributes) element.setAttribute(name, attributes[name]);
    if (parent) parent.append(element);
    return element;
  }

  // ---- tokens --------------------------------------------------------------------------------------------------

  /**
   * One token. Only its ink carries the kind's look: the whitespace around it stays plain, else a space at a
   * line's end would leave a coloured stub.
   */
  function tokenElement(token, marks) {
    const element = make("span", "t t-" + (token.kind in KINDS ? token.kind : "target") + marks);
    const body = token.text.trim();
    if (!body) {
      const look = unnamed(token) ? "k block" : token.text.includes("\n") ? "k nl" : token.text ? "k" : "k empty";
      make("span", look, element, token.text);
      return element;
    }
    const start = token.text.indexOf(body);
    const end = start + body.length;
    if (start) element.append(token.text.slice(0, start));
    make("span", start ? "k sp" : "k", element, body);
    if (end < token.text.length) element.append(token.text.slice(end));
    return element;
  }

  /** The rejected token in whose place a corrected one stands. */
  function droppedFor(token, round) {
    if (token.kind !== "corrected") return null;
    return round.tokens.find((other) => other.kind === "rejected" && other.position === token.position);
  }

  /**
   * The element that a drafted token was copied from, if it was. A copy that reaches the end of the text goes on
   * with its own beginning. `places` holds the elements of prompt and output before this round.
   */
  function copiedFrom(token, round, places) {
    const drafted = token.kind === "accepted" || token.kind === "rejected";
    if (!drafted || typeof round.source !== "number" || places.length <= round.source) return null;
    return places[round.source + ((token.position - 1) % (places.length - round.source))];
  }

  /**
   * The elements of a round. The first one carries the boundary, and so does the first kept one: a boundary
   * stays when rejected tokens are hidden.
   */
  function roundElements(round, boundary, start, places) {
    const firstKept = round.tokens.findIndex((token) => token.kind !== "rejected");
    return round.tokens.map((token, i) => {
      const marks = !boundary ? "" : (i === 0 ? " first" : "") + (i === firstKept ? " first-kept" : "");
      const element = tokenElement(token, marks);
      const ends = round.stop === "eos" && i === round.tokens.length - 1;
      const from = copiedFrom(token, round, places);
      records.set(element, { token, drafted: round.drafted, dropped: droppedFor(token, round), from, index: start + i, ends });
      return element;
    });
  }

  // ---- copying -------------------------------------------------------------------------------------------------

  /** The output that a selection covers, without rejected tokens. @param {Range} range */
  function keptText(area, range) {
    let text = "";
    for (const element of area.children) {
      const output = records.has(element) && !element.classList.contains("t-rejected");
      if (!output || !range.intersectsNode(element)) continue;
      const part = document.createRange();
      part.selectNodeContents(element);
      if (range.compareBoundaryPoints(Range.START_TO_START, part) > 0) {
        part.setStart(range.startContainer, range.startOffset);
      }
      if (range.compareBoundaryPoints(Range.END_TO_END, part) < 0) part.setEnd(range.endContainer, range.endOffset);
      text += part.toString();
    }
    return text;
  }

  /** Copying inside one lane gives its output; any other selection keeps the browser's way. */
  function onCopy(event) {
    const selection = document.getSelection();
    if (!selection.rangeCount || selection.isCollapsed || !event.clipboardData) return;
    const range = selection.getRangeAt(0);
    const node = range.commonAncestorContainer;
    const area = (node.nodeType === 1 ? node : node.parentElement).closest('[data-role="tokens"]');
    if (!area) return;
    event.clipboardData.setData("text/plain", keptText(area, range));
    event.preventDefault();
  }

  // ---- the tooltip ---------------------------------------------------------------------------------------------

  /** Two decimals, more only where two would say 0. */
  function formatProbability(p) {
    if (p >= 0.01 || p === 0) return p.toFixed(2);
    return p < 0.0001 ? "<0.0001" : p.toPrecision(1);
  }

  /** Whitespace made visible. */
  function visible(text) {
    const marks = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
    return text.replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length)).replace(/[\n\r\t]/g, (c) => marks[c]);
  }

  /** What a token is, in lines of strings and quoted texts. */
  function tipLines(record) {
    const { token, dropped } = record;
    const number = (name, value) => (typeof value === "number" ? `${name} ${formatProbability(value)}` : null);
    const join = (parts, mark) => parts.filter(Boolean).join(mark);
    const text = token.text ? { quote: token.text } : record.ends ? "end of text"
      : unnamed(token) ? "a drafted token" : "part of a character";
    const lines = [
      [text, " · " + KINDS[token.kind]],
      [!token.round ? "round 0, the prompt’s own pass" : token.kind === "streamed" ? "" : roundLine(token, record.drafted)],
      [join([number("target p", token.p), number("draft q", token.q), number("acceptance", token.acceptance)], " · ")],
    ];
    if (record.from) lines.push(["copied from the marked place"]);
    if (unnamed(token)) lines.push([UNNAMED]);
    if (dropped && unnamed(dropped)) {
      lines.push(["in place of a drafted token, which the server does not name"]);
    } else if (dropped) {
      const odds = join([number("p", dropped.p), number("q", dropped.q)], ", ");
      lines.push(["drafted ", { quote: dropped.text }, `${odds && ": " + odds}, rejected`]);
    }
    const id = token.id === undefined ? "" : `id ${token.id} · `;
    lines.push([`${id}${token.seconds.toFixed(3)} s on the lane’s clock`]);
    return lines.filter((line) => line[0]);
  }

  /** Whether a server counted this drafted token without saying which it was. */
  const unnamed = (token) => token.kind === "rejected" && token.id === undefined && !token.text;

  const roundLine = (token, drafted) =>
    `round ${token.round}, position ${token.position}` + (drafted ? ` (γ ${drafted})` : "");

  /** A line of the tooltip; quoted text is isolated, for it may run from right to left. */
  function tipLine(parts) {
    const line = make("div");
    for (const part of parts) {
      if (typeof part === "string") line.append(part);
      else line.append("“", make("bdi", "", null, visible(part.quote)), "”");
    }
    return line;
  }

  /** The one tooltip of a view. It lies over the page and moves nothing. */
  class Tip {
    constructor(frame) {
      this.frame = frame;
      this.box = make("div", "race-tip", frame, null, {
        role: "tooltip", id: `race-tip-${++serial}`, "data-role": "tip",
      });
      this.box.hidden = true;
      this.spoken = make("div", "race-spoken", frame, null, { "aria-live": "polite" });
      this.element = null;
      this.source = null;
      this.byKey = false;
    }

    show(element, byKey) {
      if (this.element === element) return;
      this.hide();
      this.element = element;
      this.byKey = byKey;
      element.classList.add("current");
      this.source = records.get(element).from;
      if (this.source) this.source.classList.add("source");
      element.parentElement.setAttribute("aria-describedby", this.box.id);
      this.box.replaceChildren(...tipLines(records.get(element)).map(tipLine));
      this.box.hidden = false;
      if (byKey) this.spoken.textContent = this.box.innerText;
      this.place();
    }

    hide() {
      if (!this.element) return;
      this.element.classList.remove("current");
      if (this.source) this.source.classList.remove("source");
      if (this.element.parentElement) this.element.parentElement.removeAttribute("aria-describedby");
      this.element = null;
      this.box.hidden = true;
    }

    isIn(area) {
      return this.element !== null && this.element.parentElement === area;
    }

    /** Above the token, below it where there is no room, and never past an edge. */
    place() {
      const spot = this.element.querySelector(".k").getClientRects()[0] || this.element.getBoundingClientRect();
      const around = this.frame.getBoundingClientRect();
      const right = Math.min(document.documentElement.clientWidth - 8, around.right) - this.box.offsetWidth;
      const left = Math.max(8, around.left, Math.min(spot.left - 8, right));
      const above = spot.top - this.box.offsetHeight - 8;
      const top = above >= 4 ? above : spot.bottom + 8;
      const [x, y] = [left - around.left, top - around.top].map(Math.round);
      this.box.style.transform = `translate(${x}px, ${y}px)`;
    }
  }

  // ---- the area ------------------------------------------------------------------------------------------------

  /** The scrolling text of one lane. `add` gathers, `flush` writes, `scroll` follows: layout is asked for once. */
  class Area {
    constructor(parent, hint, tip) {
      this.area = make("div", "race-tokens", parent, null, {
        "data-role": "tokens", "data-hint": hint, tabindex: 0, role: "group",
      });
      this.tip = tip;
      this.elements = [];
      this.places = [];
      this.prompted = false;
      this.waiting = [];
      this.follow = true;
      this.lastTop = 0;
      this.listen();
    }

    /** Shows the prompt above the output, so that copies from it can be pointed at. @param {string[]} pieces */
    showPrompt(pieces) {
      const prompt = make("div", "race-prompt", null, null, { "data-role": "prompt" });
      this.places = pieces.map((piece) => make("span", "", prompt, piece));
      this.prompted = true;
      this.area.prepend(prompt);
    }

    /** @param {Round} round  @param {boolean} boundary whether to mark where the round begins */
    add(round, boundary) {
      const places = this.prompted ? this.places : []; // sources count from the prompt's first token
      const elements = roundElements(round, boundary, this.elements.length, places);
      this.elements.push(...elements);
      this.places.push(...elements.filter((element) => records.get(element).token.kind !== "rejected"));
      this.waiting.push(...elements);
    }

    flush() {
      if (!this.waiting.length) return;
      const piece = document.createDocumentFragment();
      piece.append(...this.waiting);
      this.area.append(piece);
      this.waiting = [];
      this.moved = true;
    }

    scroll() {
      if (this.moved && this.follow) this.toEnd();
      this.moved = false;
    }

    /** Hover, tap, keys and scrolling: one listener each, however many tokens there are. */
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
      area.addEventListener("scroll", () => this.onScroll(), { passive: true });
      new ResizeObserver(() => this.follow && this.elements.length && this.toEnd()).observe(area);
    }

    /** Scrolls to the end; with its first line whole, where the padding below the last one has room for that. */
    toEnd() {
      const { area } = this;
      const style = getComputedStyle(area);
      const [line, above, below] = [style.lineHeight, style.paddingTop, style.paddingBottom].map(parseFloat);
      if (below < line) {
        area.scrollTop = 1e9;
        return;
      }
      const hidden = area.scrollHeight - below - area.clientHeight; // of the text, if nothing were scrolled
      area.scrollTop = hidden > 0 ? above + Math.ceil((hidden - above) / line) * line : 0;
    }

    /** Follows the end until the user scrolls up, and again once they are back at the end. */
    onScroll() {
      const { area, tip } = this;
      const top = area.scrollTop;
      const near = 30 + parseFloat(getComputedStyle(area).paddingBottom);
      if (area.scrollHeight - top - area.clientHeight < near) this.follow = true;
      else if (top < this.lastTop - 1) this.follow = false;
      this.lastTop = top;
      if (!tip.isIn(area)) return;
      if (tip.byKey) tip.place();
      else tip.hide();
    }

    onKey(event) {
      const { tip } = this;
      if (event.key === "Escape" && tip.element) {
        event.stopPropagation();
        tip.hide();
      }
      if (!KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
      event.preventDefault();
      const element = this.keyTarget(event.key);
      if (!element) return;
      this.follow = element === this.elements[this.elements.length - 1];
      tip.show(element, true);
      element.scrollIntoView({ block: "nearest" });
      tip.place();
    }

    /** The token a key leads to, past hidden ones: sideways by token, up and down by round. */
    keyTarget(key) {
      const { elements, tip } = this;
      const step = KEYS[key];
      const here = tip.isIn(this.area) && key !== "Home" && key !== "End" ? records.get(tip.element) : null;
      const stays = (element) => here && (key === "ArrowUp" || key === "ArrowDown")
        && records.get(element).token.round === here.token.round;
      let i = here ? here.index + step : step > 0 ? 0 : elements.length - 1;
      while (elements[i] && (!elements[i].getClientRects().length || stays(elements[i]))) i += step;
      return elements[i] || null;
    }
  }

  // ---- legend --------------------------------------------------------------------------------------------------

  /** The kinds of tokens and what they mean; returns the box that hides the rejected ones. */
  function buildLegend(frame) {
    const legend = make("div", "race-legend", frame);
    for (const [kind, meaning] of LEGEND) {
      const entry = make("span", "race-key", legend);
      make("span", "k-" + kind, entry, kind);
      entry.append(" " + meaning);
      entry.dataset.kind = kind;
      entry.hidden = kind === "streamed"; // until there is one
    }
    const label = make("label", "race-toggle", legend);
    const box = make("input", "", label, null, { type: "checkbox", "data-role": "show-rejected" });
    box.checked = true;
    label.append("show rejected");
    return box;
  }

  // ---- figures -------------------------------------------------------------------------------------------------

  /** The table of all figures; the formula stands under the name, and over the row. */
  function fillFigures(table, titles, rows) {
    const head = make("tr");
    for (const name of ["", ...titles]) make("th", "", head, name, { scope: "col" });
    table.replaceChildren(head, ...rows.map((row) => {
      const line = make("tr", "", null, null, { title: row.formula });
      make("small", "", make("th", "", line, row.label, { scope: "row" }), row.formula);
      for (const value of row.values) make("td", "", line, value);
      return line;
    }));
  }

  window.SpecDemoTokens = {
    make, onCopy, buildLegend, fillFigures,
    createTip: (frame) => new Tip(frame),
    createArea: (parent, hint, tip) => new Area(parent, hint, tip),
  };
})();
