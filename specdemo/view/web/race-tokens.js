/*
 * What the race view and the batch view share: tokens as elements, the tooltip of a token, copying, the legend, and
 * the table of figures.
 *
 * A plain script that defines `window.SpecDemoTokens`; it is loaded after dom.js.
 */
(function () {
  "use strict";

  const { make, setHidden, toggle } = window.SpecDemoDom;
  const KINDS = {
    target: "by the target", accepted: "accepted: drafted, kept", corrected: "corrected by the target",
    bonus: "bonus: a free token", rejected: "rejected: drafted, dropped", streamed: "from a server, its kind not told",
  };
  const LEGEND = [
    ["accepted", "drafted, kept"], ["corrected", "by the target"], ["bonus", "free token"],
    ["rejected", "drafted, dropped"], ["streamed", "kind not told"],
  ];
  /** The text of one lane. */
  const AREA = '[data-role="tokens"]';
  const UNNAMED = "the server counts its rejected tokens and does not say which they were";

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

  /** Whether a round drafted several guesses a position; its tokens say then which they follow. */
  const isTree = (round) => round.tokens.some((token) => token.parent !== undefined);

  /** The rejected token that a corrected token replaces: in a tree the first guess of its position. */
  function replacedBy(token, round) {
    if (token.kind !== "corrected") return null;
    return round.tokens.find((other) => other.kind === "rejected" && other.position === token.position
      && other.parent === token.parent);
  }

  /** Whether a rejected token is no part of what reads as a chain: a second guess, or behind one. */
  function isBranch(token, round) {
    if (token.kind !== "rejected" || token.parent === undefined) return false;
    return token !== replacedBy(round.tokens.at(-1), round);
  }

  /** Whether a token was dropped without a look at it. In a server's tree, which has no branches here, nobody can say. */
  function untested(token, round) {
    if (token.parent !== undefined) return token.kind === "rejected" && typeof token.acceptance !== "number";
    const rejected = round.tokens.filter((other) => other.kind === "rejected").map((other) => other.position);
    const chain = new Set(rejected).size === rejected.length;
    return token.kind === "rejected" && chain && token.position > Math.min(...rejected);
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
    const tree = isTree(round) ? round : null;
    return round.tokens.map((token, i) => {
      const begins = !boundary ? "" : (i === 0 ? " first" : "") + (i === firstKept ? " first-kept" : "");
      const element = tokenElement(token, begins + (isBranch(token, round) ? " t-branch" : ""));
      records.set(element, {
        token, drafted: round.drafted, tree, index: start + i,
        dropped: replacedBy(token, round),
        from: copiedFrom(token, round, places),
        untested: untested(token, round),
        ends: round.stop === "eos" && i === round.tokens.length - 1,
      });
      return element;
    });
  }

  // ---- copying -------------------------------------------------------------------------------------------------

  /** A copy from inside one lane leaves rejected tokens out; any other selection is copied by the browser as usual. */
  function onCopy(event) {
    const selection = document.getSelection();
    if (!selection.rangeCount || selection.isCollapsed || !event.clipboardData) return;
    const range = selection.getRangeAt(0);
    const node = range.commonAncestorContainer;
    if (!(node.nodeType === 1 ? node : node.parentElement).closest(AREA)) return;
    const part = range.cloneContents();
    for (const dropped of part.querySelectorAll(".t-rejected, .race-prompt")) dropped.remove();
    event.clipboardData.setData("text/plain", part.textContent);
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

  /** The probabilities that are known, with their names. */
  const numbers = (named, mark, format = formatProbability) => Object.entries(named)
    .filter(([, value]) => typeof value === "number").map(([name, value]) => `${name} ${format(value)}`).join(mark);

  function roundLine(token, drafted, tree) {
    if (!token.round) return "round 0, the prompt’s own pass";
    if (token.kind === "streamed") return "";
    const of = tree ? ` (tree of ${drafted})` : drafted ? ` (γ ${drafted})` : "";
    return `round ${token.round}, position ${token.position}${of}`;
  }

  /** The lines of a token's tooltip; each is a list of strings and of quoted texts. */
  function tipLines({ token, dropped, drafted, tree, from, untested: dismissed, ends }) {
    const text = token.text ? { quote: token.text } : ends ? "end of text"
      : unnamed(token) ? "a drafted token" : "part of a character";
    const lines = [
      [text, " · " + KINDS[token.kind]],
      [roundLine(token, drafted, tree)],
      [numbers({ "target p": token.p, "draft q": token.q, acceptance: token.acceptance }, " · ")],
    ];
    if (from) lines.push(["copied from the marked place"]);
    if (unnamed(token)) lines.push([UNNAMED]);
    else if (dismissed) lines.push([tree ? "dropped: its branch was left" : "dropped: an earlier token of this round was rejected"]);
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
      this.box.replaceChildren(...tipLines(records.get(element)).map(tipLine));
      this.box.hidden = false;
      if (byKey) this.spoken.textContent = this.box.innerText;
      this.place();
      this.announce(element);
    }

    /** Says which token is pointed at, and which moment that is, for the other places where these are shown. */
    announce(element) {
      const seconds = element && records.get(element).token.seconds;
      this.frame.dispatchEvent(new CustomEvent("race-moment", { detail: seconds }));
      this.frame.dispatchEvent(new CustomEvent("race-token", { detail: element }));
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

  // ---- legend and figures --------------------------------------------------------------------------------------

  /** Explains the kinds of tokens, and has the box that shows or hides the rejected ones. Returns its element. */
  function buildLegend(frame, tip) {
    const legend = make("div", "race-legend", frame);
    for (const [kind, meaning] of LEGEND) {
      const entry = make("span", "race-key", legend, null, { "data-kind": kind });
      make("span", "k-" + kind, entry, kind);
      entry.append(" " + meaning);
      entry.hidden = kind === "streamed"; // until there is one
    }
    const [, box] = toggle(legend, "show-rejected", "show rejected");
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

  window.SpecDemoTokens = {
    Figures, Tip, buildLegend, formatProbability, isBranch, isTree, numbers, onCopy, records, roundElements, untested, visible,
  };
})();
