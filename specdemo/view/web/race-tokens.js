/*
 * What the race view and the batch view share: the text of a lane as tokens, the tooltip of a token, copying from
 * that text, the legend, and the table of figures.
 *
 * A plain script that defines `window.SpecDemoTokens`; it is loaded after dom.js.
 */
(function () {
  "use strict";

  const { ARROWS, make, setHidden } = window.SpecDemoDom;
  const KINDS = {
    target: "by the target", accepted: "accepted: drafted, kept", corrected: "corrected by the target",
    bonus: "bonus: a free token", rejected: "rejected: drafted, dropped", streamed: "from a server, its kind not told",
  };
  const LEGEND = [
    ["accepted", "drafted, kept"], ["corrected", "by the target"], ["bonus", "free token"],
    ["rejected", "drafted, dropped"], ["streamed", "kind not told"],
  ];
  const UNNAMED = "the server counts its rejected tokens and does not say which they were";
  const KEYS = { ...ARROWS, Home: 1, End: -1 };

  /** What the tooltip needs to know of each token's element. */
  const records = new WeakMap();

  // ---- tokens --------------------------------------------------------------------------------------------------

  /** Whether a server counted this rejected token without saying which it was. */
  const unnamed = (token) => token.kind === "rejected" && token.id === undefined && !token.text;

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

  /** The rejected token that a corrected token replaces. */
  function replacedBy(token, round) {
    if (token.kind !== "corrected") return null;
    return round.tokens.find((other) => other.kind === "rejected" && other.position === token.position);
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

  /**
   * The elements of a round. Its first element is marked as the boundary, and so is the first kept one: the
   * boundary must stay visible when rejected tokens are hidden.
   */
  function roundElements(round, boundary, start, places) {
    const firstKept = round.tokens.findIndex((token) => token.kind !== "rejected");
    return round.tokens.map((token, i) => {
      const marks = !boundary ? "" : (i === 0 ? " first" : "") + (i === firstKept ? " first-kept" : "");
      const element = tokenElement(token, marks);
      records.set(element, {
        token, drafted: round.drafted, index: start + i,
        dropped: replacedBy(token, round),
        from: copiedFrom(token, round, places),
        ends: round.stop === "eos" && i === round.tokens.length - 1,
      });
      return element;
    });
  }

  // ---- copying -------------------------------------------------------------------------------------------------

  /** The selected part of the output, without rejected tokens. @param {Range} range */
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

  /** A copy from inside one lane gives its output; any other selection is copied by the browser as usual. */
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

  function roundLine(token, drafted) {
    if (!token.round) return "round 0, the prompt’s own pass";
    if (token.kind === "streamed") return "";
    return `round ${token.round}, position ${token.position}` + (drafted ? ` (γ ${drafted})` : "");
  }

  /** The lines of a token's tooltip; each is a list of strings and of quoted texts. */
  function tipLines({ token, dropped, drafted, from, ends }) {
    const numbers = (named, mark) => Object.entries(named).filter(([, value]) => typeof value === "number")
      .map(([name, value]) => `${name} ${formatProbability(value)}`).join(mark);
    const text = token.text ? { quote: token.text } : ends ? "end of text"
      : unnamed(token) ? "a drafted token" : "part of a character";
    const lines = [
      [text, " · " + KINDS[token.kind]],
      [roundLine(token, drafted)],
      [numbers({ "target p": token.p, "draft q": token.q, acceptance: token.acceptance }, " · ")],
    ];
    if (from) lines.push(["copied from the marked place"]);
    if (unnamed(token)) lines.push([UNNAMED]);
    if (dropped && unnamed(dropped)) {
      lines.push(["in place of a drafted token, which the server does not name"]);
    } else if (dropped) {
      const odds = numbers({ p: dropped.p, q: dropped.q }, ", ");
      lines.push(["drafted ", { quote: dropped.text }, `${odds && ": " + odds}, rejected`]);
    }
    const id = token.id === undefined ? "" : `id ${token.id} · `;
    lines.push([`${id}${token.seconds.toFixed(3)} s on the lane’s clock`]);
    return lines.filter((line) => line[0]);
  }

  /** A line of the tooltip. Quoted text may run from right to left, so it is isolated from the rest. */
  function tipLine(parts) {
    const line = make("div");
    for (const part of parts) {
      if (typeof part === "string") line.append(part);
      else line.append("“", make("bdi", "", null, visible(part.quote)), "”");
    }
    return line;
  }

  /** The only tooltip of a view. It lies over the page and moves nothing. */
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
        if (!event.target.closest('[data-role="tokens"]')) this.hide();
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
      element.parentElement.setAttribute("aria-describedby", this.box.id);
      this.box.replaceChildren(...tipLines(records.get(element)).map(tipLine));
      this.box.hidden = false;
      if (byKey) this.spoken.textContent = this.box.innerText;
      this.place();
    }

    hide() {
      if (!this.element) return;
      this.element.classList.remove("current");
      this.source?.classList.remove("source");
      this.element.parentElement?.removeAttribute("aria-describedby");
      this.element = null;
      this.box.hidden = true;
    }

    isIn(area) {
      return this.element?.parentElement === area;
    }

    /** Above the token, or below it where there is no space above, and never past an edge. */
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

  /**
   * The scrolling text of one lane. `add` collects tokens, `flush` inserts them, and `scroll` follows the end: with
   * the three called for all lanes in turn, the browser computes the layout once.
   */
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

    /** Shows the prompt above the output, so that tokens copied from it can point at it. @param {string[]} pieces */
    showPrompt(pieces) {
      if (this.places.length) return;
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
      this.area.append(...this.waiting);
      this.waiting = [];
      this.moved = true;
    }

    scroll() {
      if (this.moved && this.follow) this.toEnd();
      this.moved = false;
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
      area.addEventListener("scroll", () => this.onScroll(), { passive: true });
      new ResizeObserver(() => this.follow && this.elements.length && this.toEnd()).observe(area);
    }

    /** Scrolls to the end. Where the padding below the text has the space, the first visible line is a whole one. */
    toEnd() {
      const { area } = this;
      const style = getComputedStyle(area);
      const [line, above, below] = [style.lineHeight, style.paddingTop, style.paddingBottom].map(parseFloat);
      if (below < line) {
        area.scrollTop = 1e9;
        return;
      }
      const hidden = area.scrollHeight - below - area.clientHeight; // text height that does not fit
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
      this.follow = element === this.elements.at(-1);
      tip.show(element, true);
      element.scrollIntoView({ block: "nearest" });
      tip.place();
    }

    /** The token that a key leads to: left and right by token, up and down by round, without hidden ones. */
    keyTarget(key) {
      const { elements, tip } = this;
      const step = KEYS[key];
      const here = tip.isIn(this.area) && key !== "Home" && key !== "End" ? records.get(tip.element) : null;
      const sameRound = (element) => here && (key === "ArrowUp" || key === "ArrowDown")
        && records.get(element).token.round === here.token.round;
      let i = here ? here.index + step : step > 0 ? 0 : elements.length - 1;
      while (elements[i] && (!elements[i].getClientRects().length || sameRound(elements[i]))) i += step;
      return elements[i] || null;
    }
  }

  // ---- legend and figures --------------------------------------------------------------------------------------

  /** Explains the kinds of tokens, and has the box that shows or hides the rejected ones. */
  function buildLegend(frame, tip) {
    const legend = make("div", "race-legend", frame);
    for (const [kind, meaning] of LEGEND) {
      const entry = make("span", "race-key", legend, null, { "data-kind": kind });
      make("span", "k-" + kind, entry, kind);
      entry.append(" " + meaning);
      entry.hidden = kind === "streamed"; // until there is one
    }
    const label = make("label", "race-toggle", legend);
    const box = make("input", "", label, null, { type: "checkbox", "data-role": "show-rejected" });
    box.checked = true;
    label.append("show rejected");
    box.addEventListener("change", () => {
      tip.hide();
      frame.classList.toggle("hide-rejected", !box.checked);
    });
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
      setHidden(this.card, !rows.length);
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

  window.SpecDemoTokens = { Area, Figures, Tip, buildLegend, onCopy };
})();
