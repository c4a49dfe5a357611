/*
 * A round's draft tree as a picture: every guess with p and q, the kept path strong, the rest light.
 */

const { cardHead, counted, make, setText, toggle } = window.SpecDemoDom;
const { formatProbability, numbers, visible } = window.SpecDemoTips;

const SVG = "http://www.w3.org/2000/svg";
/** Widths and heights in pixels: of a node with its gap, and of the gap. More than so many nodes are drawn small. */
const WIDE = { width: 138, height: 46, gap: 20 };
const SMALL = { width: 118, height: 27, gap: 16 };
const MANY = 20;
/** Width of what stands for the text before. */
const ROOT = 54;
const FATES = { accepted: "kept", rejected: "dropped", corrected: "by the target", bonus: "free token" };
const FATE_KEY = "Struck through: dropped; grey: never tested.";

/** The nodes in the order of drawing: the kept path first, so that it is a straight line at the top. */
function arranged(round) {
  const nodes = [{ token: null, depth: 0, row: 0, children: [] }];
  for (const token of round.tokens) {
    const node = { token, depth: token.position, children: [], parent: nodes[token.parent] };
    nodes.push(node);
    if (token.kind === "rejected") node.parent.children.push(node);
    else node.parent.children.unshift(node);
  }
  /** The lowest row that is taken, by depth. */
  const taken = [];
  /** Gives the first guesses from a node on a row, as high as it is free, then those beside them, deepest first. */
  const place = (first) => {
    const line = [];
    for (let node = first; node; node = node.children[0]) line.push(node);
    const row = 1 + Math.max(...line.map(({ depth }) => taken[depth] ?? -1));
    for (const node of line) node.row = taken[node.depth] = row;
    for (const node of line.reverse()) node.children.slice(1).forEach(place);
  };
  place(nodes[0]);
  return { nodes, rows: Math.max(...taken) + 1, depth: taken.length - 1 };
}

/** A probability with at most five characters, so that two fit into a box. */
const brief = (p) => (p > 0 && p < 0.01 ? "<0.01" : p.toFixed(2));

const odds = ({ p, q }, format = formatProbability) => numbers({ p, q }, " · ", format);

const sizeOf = (round) => (round.tokens.length < MANY ? WIDE : SMALL);

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
  if (token.untested) element.dataset.untested = "";
  make("bdi", "", element, visible(token.text) || "∅");
  make("small", "", element, size === WIDE ? odds(token, brief) : typeof token.p === "number" ? brief(token.p) : "");
  element.title = [`“${visible(token.text)}” · ${token.untested ? "never tested" : FATES[token.kind]}`, odds(token)]
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
  const size = sizeOf(round);
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

function treeSummary(round) {
  const { drafted, accepted } = round;
  const own = round.tokens.at(-1).kind;
  const end = own === "corrected" ? ", then wrote its own token" : own === "bonus" ? ", then added one for free" : "";
  const alone = round.first_guesses;
  const saved = alone < accepted ? ` A later guess saved the round: first guesses alone would have kept ${alone}.` : "";
  return `One pass of the target checked ${counted(drafted, "guess", "guesses")} and kept ${accepted}${end}.${saved}`;
}

/** The card, and the box in the legend that opens it. */
class TreeCard {
  /** @param {HTMLElement} frame of the view  @param {HTMLElement} legend that gets the boxes */
  constructor(frame, legend) {
    this.card = make("section", "race-card race-tree", null, null, { "data-role": "tree", "aria-label": "Draft tree of a round" });
    this.card.hidden = true;
    [, this.title] = cardHead(this.card, () => this.toggle(false));
    this.text = make("p", "tree-text", this.card, null, { "aria-live": "polite" });
    this.scroll = make("div", "tree-scroll", this.card, null, { role: "img", tabindex: 0 });
    this.key = make("p", "tree-key", this.card);
    const [branches, shown] = toggle(legend, "show-branches", "show dropped branches", "race-toggle tree-toggle");
    const [opens, open] = toggle(legend, "show-tree", "draw the tree", "race-toggle tree-toggle");
    this.toggles = [branches, opens];
    this.open = open;
    shown.addEventListener("change", () => frame.classList.toggle("show-branches", shown.checked));
    open.addEventListener("change", () => {
      this.refresh();
      if (open.checked) this.card.scrollIntoView({ block: "nearest" });
    });
    frame.addEventListener("race-token", ({ detail }) => this.point(detail));
  }

  /** The round to draw; null if the card is closed, or has none. */
  get round() {
    return this.open.checked ? this.pointed || this.last : null;
  }

  /** Opens or closes the card as the box does. */
  toggle(opened) {
    if (this.open.checked !== opened) this.open.click();
  }

  begin(lanes) {
    this.lanes = lanes;
    /** Numbers of the lanes that drafted a tree in this run. */
    this.drafting = new Set();
    this.scroll.style.removeProperty("--tall");
    for (const line of this.toggles) line.hidden = true;
    this.forget();
  }

  /** The run starts again, or goes back: the rounds that stay are added anew. */
  forget() {
    this.last = this.pointed = null;
    this.queue();
  }

  add(round) {
    if (!round.tree) return;
    this.last = round;
    this.drafting.add(round.lane);
    for (const line of this.toggles) line.hidden = false;
    this.queue();
  }

  /** A token is pointed at, or no longer. @param {?{round: Round}} record */
  point(record) {
    this.pointed = record?.round.tree ? record.round : null;
    this.queue();
  }

  /** Draws before the next frame, once for all that happens until then. */
  queue() {
    this.frame ||= requestAnimationFrame(() => this.refresh());
  }

  refresh() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.card.hidden = !this.open.checked || !this.drafting.size;
    if (this.card.hidden) return;
    const { round } = this;
    setText(this.title, round ? this.titleOf(round) : "Draft tree");
    if (this.drawn === round) return;
    this.drawn = round;
    const said = round ? treeSummary(round) : "None of the rounds so far drafted a tree.";
    this.text.textContent = said;
    this.scroll.setAttribute("aria-label", `${this.title.textContent}. ${said}`);
    this.scroll.replaceChildren(...(round ? [picture(round)] : []));
    const numbered = round && sizeOf(round) === SMALL ? "Numbers: p, the target’s probability." : "p: the target’s probability, q: the draft’s.";
    setText(this.key, `${numbered} ${FATE_KEY}`);
    this.scroll.scrollTo(0, 0);
    // As tall as the tallest picture of the run, so that the buttons below stay where they are.
    this.scroll.style.setProperty("--tall", `${this.scroll.offsetHeight}px`);
  }

  titleOf({ index, lane, drafted }) {
    const name = this.drafting.size > 1 ? ` · ${this.lanes[lane].spec.title}` : "";
    return `Round ${index}: a tree of ${counted(drafted, "guess", "guesses")}${name}`;
  }
}

window.SpecDemoRounds = { TreeCard };
