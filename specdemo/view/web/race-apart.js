/*
 * A round taken apart: what the draft guessed, how each guess was judged, and what came of it, side by side. A round
 * with a draft tree opens the tree's card instead; only one of the two is open.
 */

const { button, cardHead, counted, make, toggle } = window.SpecDemoDom;
const { formatProbability, percent, reason, texts, visible } = window.SpecDemoTips;

const KEY = "specdemo-take-apart";
let opened = false;
/** Whether the card opens by itself no more. A browser may forbid pages to store that; then it holds for this visit. */
let off = false;
try { off = localStorage.getItem(KEY) === "off"; } catch { /* forbidden */ }

/** What the rule of a lane asks of a guess; of those whose test has no picture, why. */
const RULES = {
  exact: "In one pass the target names its most likely token at each place. A guess is kept while it is that token.",
  sampling: "In one pass the target says how likely each guess is: p. The draft drew it with probability q. A number is drawn from 0 to 1, and the guess is kept while that is below min(1, p/q): always where p is at least q.",
  "token match": "In one pass the target draws a token of its own at each place. A guess is kept while it is the same token.",
  naive: "A number is drawn from 0 to 1, and a guess is kept while it is below p, the target’s probability. This takes no account of q, so it changes the output.",
  block: "Block verification judges all guesses together, so there is no picture of a test for each.",
  typical: "A guess is kept while its p is above a bound, which is lower where the target is unsure. The bound is not recorded, so there is no picture of the test.",
};
const ruleText = (rule = "") => RULES[rule] || (rule.startsWith("top-")
  ? `A guess is kept while it is among the target’s ${rule.slice(4)} most likely tokens. Its rank is not recorded, so there is no picture of the test.`
  : "The server tells what it kept, and not how it decided.");

/** Whether a round can be shown: it drafted something, and all of its tokens are named. */
const named = (round) => round.drafted > 0 && round.tokens.every(({ text, kind }) => text && kind !== "streamed");
const ownOf = (round) => round.tokens.find(({ kind }) => kind === "corrected" || kind === "bonus");
const corrected = (round) => ownOf(round)?.kind === "corrected";

const chip = (parent, { text }, className) => make("bdi", className, parent, text.trim() || visible(text));

function chips(parent, tokens, className) {
  const row = make("ol", "apart-tokens", parent);
  for (const token of tokens) chip(make("li", "", row), token, className || `k-${token.kind}`);
}

/** Bars on one scale, a line each; one with a `mark` is itself a scale from 0 to 1, on which what is below `value` keeps. */
function bars(parent, lines, most = Math.max(...lines.map(({ value, mark }) => (mark === undefined ? value : 0))) || 1) {
  const list = make("dl", "apart-bars", parent);
  for (const { name, value, covered, mark, figure } of lines) {
    make("dt", "", list).append(name);
    const track = make("dd", "apart-track", list, null, { "aria-hidden": "true" });
    const part = (kind, side, share) => { make("i", kind, track).style[side] = `${100 * share}%`; };
    const scale = mark !== undefined;
    part(scale ? "zone" : "bar", "width", value / (scale ? 1 : most));
    if (covered) part("covered", "width", covered / most);
    if (scale) part("mark", "left", mark);
    make("dd", "", list, figure);
  }
}

/** The bars of one guess: what the rule compares. */
function test(parent, { kind, p, q, u, acceptance }, round, rule) {
  if (typeof p !== "number") return;
  const line = (name, value, mark) => ({ name, value, mark, figure: formatProbability(mark ?? value) });
  const drawn = typeof u === "number" ? [line("number drawn", acceptance, u)] : [];
  const matched = { exact: "p of its best", "token match": "p of its draw" }[rule];
  const own = kind === "rejected" && matched ? [line(matched, ownOf(round).p)] : [];
  const whole = matched || rule === "naive"; // q plays no part, and p stands for itself
  const drafted = whole ? undefined : q ?? (rule === "sampling" ? 1 : undefined); // a copied guess is certain
  bars(parent, [...(drafted === undefined ? [] : [line("draft q", drafted)]), line("target p", p), ...own, ...drawn], whole ? 1 : undefined);
}

/** What could follow in place of the dropped token: of p what q does not cover, and which token was drawn. */
function residual(parent, round, own) {
  const dropped = round.tokens.find(({ kind }) => kind === "rejected");
  make("p", "", parent).append(...texts([{ quote: own.text }, round.residual
    ? " is drawn from what p has above q, max(p − q, 0), so that the output is as the target alone would draw it. Bars: p, and grey what q covers; beside them the chance to be drawn."
    : ": what it was drawn from, max(p − q, 0), is not recorded."]));
  if (!round.residual) return;
  const rows = [{ ...dropped, share: 0 }, ...round.residual];
  bars(parent, rows.map(({ id, text, p, q, share }) => {
    const name = make("span");
    chip(name, { text }, id === own.id ? "k-corrected" : id === dropped.id ? "k-rejected" : "");
    return { name, value: p, covered: Math.min(p, q ?? 1), figure: percent(share) + (id === own.id ? ", drawn" : "") };
  }));
}

function outcome({ drafted, accepted }, own) {
  const dropped = drafted - accepted;
  const end = !own ? "" : `, and the target${own.kind === "bonus" ? " adds a token of its own for free" : "’s own token takes the place of the first dropped one"}`;
  const fate = dropped ? `${accepted} kept, ${dropped} dropped` : drafted > 1 ? `All ${drafted} kept` : "It is kept";
  return `${fate}${end}: ${counted(accepted + (own ? 1 : 0), "token")} from one pass of the target.`;
}

/** The card; `tree`: that of the view. It opens by itself after the first run of a visit, unless it was told not to. */
class Apart {
  constructor(tree) {
    this.tree = tree;
    this.card = make("section", "race-card race-apart", null, null, { "data-role": "apart", "aria-label": "A round, taken apart" });
    this.close();
    [, this.title] = cardHead(this.card, () => this.close());
    this.steps = make("div", "apart-steps", this.card);
    const foot = make("div", "apart-foot", this.card);
    this.next = button(foot, "race-control wide", "Next correction", () => {
      const { corrections: all, round } = this;
      this.open(all[(all.findLastIndex(({ seconds }) => seconds <= round.seconds) + 1) % all.length]);
    }, { "data-action": "next-correction" });
    const [, box] = toggle(foot, "apart-off", "do not open this by itself again");
    box.checked = off;
    box.addEventListener("change", () => {
      off = box.checked;
      try { localStorage.setItem(KEY, off ? "off" : "on"); } catch { /* forbidden */ }
    });
    tree.open.addEventListener("change", () => this.close());
  }

  /** The rounds that can be shown, those without a tree if there are any, and which of them have a correction. */
  know(rounds) {
    const all = rounds.filter(named);
    const chains = all.filter((round) => !round.tree);
    this.rounds = chains.length ? chains : all;
    this.corrections = this.rounds.filter(corrected);
    this.lacking = rounds.some(corrected) ? "; the server does not say which tokens it rejected" : "; no guess of this run was corrected";
    return this.corrections[0] || this.rounds[0];
  }

  /** Opens by itself, once a visit. @param {Round[]} rounds */
  greet(rounds) {
    const first = this.know(rounds);
    if (!first || first.tree || opened || off || this.tree.round) return;
    opened = true;
    this.open(first);
  }

  /** Opens with the round that was played last; before and after a run, unless it was stepped to, with the first correction. */
  take(rounds, shown, stepped = false) {
    const first = this.know(rounds);
    const round = ((stepped || shown < rounds.length) && rounds.slice(0, shown).findLast(named)) || first;
    if (round) this.open(round);
  }

  open(round) {
    this.tree.toggle(Boolean(round.tree));
    if (round.tree) return;
    this.round = round;
    const { rule, title } = this.tree.lanes[round.lane].spec;
    const several = this.tree.lanes.filter(({ spec }) => spec.gamma > 0).length > 1;
    const none = this.corrections.length ? "" : this.lacking;
    this.title.textContent = `Round ${round.index}, taken apart${several ? ` · ${title}` : ""}${none}`;
    this.next.hidden = this.corrections.length < 2;
    this.card.hidden = false;
    this.steps.replaceChildren();
    const drafted = round.tokens.filter(({ kind }) => kind === "accepted" || kind === "rejected");
    const own = ownOf(round);
    const step = (title, text) => {
      const part = make("div", "apart-step", this.steps);
      make("h4", "", part, title);
      make("p", "", part, text);
      return part;
    };
    const guesses = `${counted(round.drafted, "token")}${round.drafted > 1 ? ", one after another" : ""}`;
    chips(step("1 Draft", `The draft guesses ${guesses}. That is cheap.`), drafted, "k-guess");
    const check = step("2 Check", ruleText(rule));
    const tests = make("ol", "apart-tests", check);
    const looked = drafted.filter((token) => token.kind === "accepted" || (own && (!token.untested || rule === "block")));
    for (const token of looked) {
      const item = make("li", "", tests, null, { "data-kind": token.kind });
      chip(item, token, `k-${token.kind}`);
      test(item, token, round, rule);
      make("small", "", item).replaceChildren(...texts(reason(token, round, rule) || [token.kind === "accepted" ? "kept" : "dropped"]));
    }
    if (looked.length < drafted.length) {
      make("p", "", check, `Not looked at, since ${own ? "a guess before was dropped" : "the output ended before"}:`);
      chips(check, drafted.slice(looked.length), "k-rejected");
    }
    const last = step("3 Keep or correct", outcome(round, own));
    chips(last, round.tokens);
    if (rule === "sampling" && corrected(round)) residual(last, round, own);
  }

  close() {
    this.card.hidden = true;
  }
}

window.SpecDemoApart = { Apart };
