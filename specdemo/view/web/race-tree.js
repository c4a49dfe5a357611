/*
 * The draft tree of one round as a picture: every guess with p and q, the kept path strong, the rest light.
 *
 * A plain script that defines `window.SpecDemoTree`; it is loaded after race-tokens.js. The card shows the round of the
 * token that is pointed at or walked to, else the last round that drafted a tree.
 */
(function () {
  "use strict";

  const { make, setHidden } = window.SpecDemoDom;
  const { formatProbability, isTree, records, visible } = window.SpecDemoTokens;
  const SVG = "http://www.w3.org/2000/svg";
  /** Widths and heights in pixels: of a node with its gap, and of the gap. More than so many nodes are drawn small. */
  const WIDE = { width: 146, height: 46, gap: 22 };
  const SMALL = { width: 122, height: 27, gap: 18 };
  const MANY = 20;
  /** Width of what stands for the text before. */
  const ROOT = 62;
  const FATES = { accepted: "kept", rejected: "dropped", corrected: "by the target", bonus: "free token" };

  /** The nodes in the order of drawing: the kept path first, so that it is a straight line at the top. */
  function arranged(round) {
    const nodes = [{ token: null, depth: 0, row: 0, children: [] }];
    for (const token of round.tokens) {
      const node = { token, depth: token.position, children: [], parent: nodes[token.parent] };
      nodes.push(node);
      if (token.kind === "rejected") node.parent.children.push(node);
      else node.parent.children.unshift(node);
    }
    let row = -1;
    const place = (node) => {
      if (!node.children.length) row += 1;
      node.children.forEach(place);
      node.row = node.children.length ? node.children[0].row : row;
    };
    place(nodes[0]);
    return { nodes, rows: row + 1, depth: Math.max(...nodes.map((node) => node.depth)) };
  }

  const untested = (token) => token.kind === "rejected" && typeof token.acceptance !== "number";

  function numbers({ p, q }) {
    return Object.entries({ p, q }).filter(([, value]) => typeof value === "number")
      .map(([name, value]) => `${name} ${formatProbability(value)}`).join(" · ");
  }

  const left = (depth, size) => (depth ? ROOT + (depth - 1) * size.width : 0);

  function box(parent, node, size) {
    const { token } = node;
    const element = make("div", `tree-node${size === SMALL ? " small" : ""}`, parent, null, { "data-kind": token?.kind || "root" });
    element.style.cssText = `left:${left(node.depth, size)}px;top:${node.row * size.height}px;`
      + `width:${token ? size.width - size.gap : ROOT - size.gap}px;height:${size.height - 6}px`;
    if (!token) {
      make("bdi", "", element, "text");
      return;
    }
    if (untested(token)) element.dataset.untested = "";
    make("bdi", "", element, visible(token.text) || "∅");
    make("small", "", element, size === SMALL ? (typeof token.p === "number" ? formatProbability(token.p) : "") : numbers(token));
    element.title = [`“${visible(token.text)}” · ${untested(token) ? "never tested" : FATES[token.kind]}`, numbers(token)]
      .filter(Boolean).join("\n");
  }

  function edge(svg, { parent, ...node }, size) {
    const [x, y] = [left(node.depth, size), node.row * size.height + size.height / 2 - 3];
    const [from, at] = [x - size.gap, parent.row * size.height + size.height / 2 - 3];
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", `M${from} ${at}h${size.gap / 2}V${y}H${x}`);
    path.dataset.kind = node.token.kind;
    svg.append(path);
  }

  function picture(round) {
    const { nodes, rows, depth } = arranged(round);
    const size = nodes.length > MANY ? SMALL : WIDE;
    const ground = make("div", "tree-ground");
    const svg = document.createElementNS(SVG, "svg");
    const [width, height] = [left(depth + 1, size) - size.gap + 2, rows * size.height];
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    svg.setAttribute("aria-hidden", "true");
    ground.append(svg);
    ground.style.cssText = `width:${width}px;height:${height}px`;
    for (const node of nodes.slice(1).sort((a, b) => (b.token.kind === "rejected") - (a.token.kind === "rejected"))) edge(svg, node, size);
    for (const node of nodes) box(ground, node, size);
    return ground;
  }

  /** How deep the first guesses alone would have been kept. */
  function firstGuesses(round) {
    const tried = new Set(round.tokens.filter((t) => t.kind === "rejected" && !untested(t)).map((t) => t.parent));
    const kept = round.tokens.filter((token) => token.kind === "accepted");
    const missed = kept.findIndex((token) => tried.has(token.parent));
    return missed < 0 ? kept.length : missed;
  }

  function summary(round) {
    const { drafted, accepted } = round;
    const own = round.tokens.at(-1).kind;
    const end = own === "corrected" ? ", then wrote its own token" : own === "bonus" ? ", then added one for free" : "";
    const alone = firstGuesses(round);
    const saved = alone < accepted ? ` A later guess saved the round: first guesses alone would have kept ${alone}.` : "";
    return `One pass of the target checked ${drafted} guesses and kept ${accepted}${end}.${saved}`;
  }

  /** The card, and the box in the legend that opens it. */
  class TreeCard {
    /** @param {HTMLElement} frame of the view  @param {HTMLElement} legend that gets the boxes */
    constructor(frame, legend) {
      this.round = null;
      this.last = null;
      this.card = make("section", "race-card race-tree", null, null, { "data-role": "tree", "aria-label": "Draft tree of a round" });
      this.card.hidden = true;
      const head = make("div", "race-card-head", this.card);
      this.title = make("h3", "", head);
      const close = make("button", "apart-close", head, "Close", { type: "button" });
      this.text = make("p", "tree-text", this.card, null, { "aria-live": "polite" });
      this.scroll = make("div", "tree-scroll", this.card, null, { role: "img" });
      const toggle = (role, label) => {
        const line = make("label", "race-toggle tree-toggle", legend);
        const input = make("input", "", line, null, { type: "checkbox", "data-role": role });
        line.append(label);
        line.hidden = true;
        return [line, input];
      };
      const [branches, shown] = toggle("show-branches", "show dropped branches");
      const [opens, open] = toggle("show-tree", "draw the tree");
      this.toggles = [branches, opens];
      this.open = open;
      shown.addEventListener("change", () => frame.classList.toggle("show-branches", shown.checked));
      open.addEventListener("change", () => this.refresh());
      close.addEventListener("click", () => { open.checked = false; this.refresh(); });
      frame.addEventListener("race-token", (event) => this.point(event.detail));
    }

    begin() {
      this.round = this.last = null;
      for (const line of this.toggles) setHidden(line, true);
      this.refresh();
    }

    /** A round was added to a lane. @param {Round} round */
    add(round) {
      if (!isTree(round)) return;
      this.last = round;
      for (const line of this.toggles) setHidden(line, false);
      if (!this.pointed) this.show(round);
    }

    /** A token is pointed at. @param {?HTMLElement} element */
    point(element) {
      const round = element && records.get(element).tree;
      this.pointed = Boolean(round);
      if (round) this.show(round);
    }

    show(round) {
      this.round = round;
      this.refresh();
    }

    refresh() {
      setHidden(this.card, !this.open.checked || !this.round);
      if (this.card.hidden || this.drawn === this.round) return;
      const { round } = this;
      this.drawn = round;
      const said = summary(round);
      this.title.textContent = `Round ${round.index}: a tree of ${round.drafted} guesses`;
      this.text.textContent = said;
      this.scroll.setAttribute("aria-label", `${this.title.textContent}. ${said}`);
      this.scroll.replaceChildren(picture(round));
      // For the keyboard it is a place to go to only where arrows have something to scroll.
      if (this.scroll.scrollWidth > this.scroll.clientWidth) this.scroll.tabIndex = 0;
      else this.scroll.removeAttribute("tabindex");
      this.scroll.scrollTo(0, 0);
    }
  }

  window.SpecDemoTree = { create: (frame, legend) => new TreeCard(frame, legend) };
})();
