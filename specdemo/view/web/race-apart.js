/*
 * One round taken apart: what the draft guessed, what the target says of it, and what came of it.
 *
 * A plain script that defines `window.SpecDemoApart`; it is loaded after race-tokens.js. It opens by itself after the
 * first run of a visit, unless it was told not to. A round with a draft tree is not for this card, whose guesses stand
 * in a row: the card with the tree takes its place. Only one of the two is open.
 */
(function () {
  "use strict";

  const KEY = "specdemo-take-apart";
  const { button, cardHead, counted, make, toggle } = window.SpecDemoDom;
  const { formatProbability, isTree, visible } = window.SpecDemoTokens;
  let opened = false;

  /** A browser may forbid pages to store anything; then the choice holds for this visit. */
  const stored = {
    get off() {
      try {
        return localStorage.getItem(KEY) === "off";
      } catch {
        return opened;
      }
    },
    set off(value) {
      try {
        localStorage.setItem(KEY, value ? "off" : "on");
      } catch {
        opened = value;
      }
    },
  };

  /** Whether a round can be shown: it drafted something, and all of its tokens are named. */
  const complete = (round) => round.drafted > 0 && round.tokens.every(({ text, kind }) => text && kind !== "streamed");

  /** What the target says of a drafted token: its probability, and the rule's where it draws lots. */
  function judgement(token) {
    const lots = typeof token.acceptance === "number" && token.acceptance > 0 && token.acceptance < 1;
    if (lots) return `kept with ${formatProbability(token.acceptance)}`;
    return typeof token.p === "number" ? `p ${formatProbability(token.p)}` : token.kind === "accepted" ? "✓" : "✗";
  }

  function chips(parent, tokens, className, note) {
    const row = make("ol", "apart-tokens", parent);
    for (const token of tokens) {
      const item = make("li", "", row);
      make("bdi", className || `k-${token.kind}`, item, token.text.trim() || visible(token.text));
      if (note) make("small", "", item, note(token));
    }
  }

  function outcome({ drafted, accepted }, own) {
    const dropped = drafted - accepted;
    const end = own?.kind === "bonus" ? "and the target adds a token of its own for free"
      : own ? "and the target’s own token takes the place of the first dropped one" : "";
    const fate = dropped ? `${accepted} kept, ${dropped} dropped` : drafted > 1 ? `All ${drafted} kept` : "It is kept";
    const gained = counted(accepted + (own ? 1 : 0), "token");
    return `${[fate, end].filter(Boolean).join(", ")}: ${gained} from one pass of the target.`;
  }

  class Apart {
    /** @param {TreeCard} tree of the view */
    constructor(tree) {
      this.tree = tree;
      this.card = make("section", "race-card race-apart", null, null, {
        "data-role": "apart", "aria-label": "A round, taken apart",
      });
      this.card.hidden = true;
      tree.open.addEventListener("change", () => this.close());
    }

    /** Opens by itself, once a visit. @param {Round[]} rounds */
    greet(rounds) {
      const first = rounds.find((round) => complete(round) && !isTree(round));
      if (!first || opened || stored.off || this.tree.round) return;
      opened = true;
      this.open(first);
    }

    /** Opens with the last of these rounds that can be shown; false if there is none. */
    openLast(rounds) {
      const round = rounds.findLast(complete);
      if (round) this.open(round);
      return Boolean(round);
    }

    /** @param {Round} round */
    open(round) {
      this.tree.toggle(isTree(round));
      if (isTree(round)) return;
      const drafted = round.tokens.filter((token) => token.kind === "accepted" || token.kind === "rejected");
      const own = round.tokens.find((token) => token.kind === "corrected" || token.kind === "bonus");
      const [head] = cardHead(null, `Round ${round.index}, taken apart`);
      button(head, "apart-close", "Close", () => this.close());
      const steps = make("div", "apart-steps");
      const step = (title, text) => {
        const part = make("div", "apart-step", steps);
        make("h4", "", part, title);
        make("p", "", part, text);
        return part;
      };
      const several = round.drafted > 1;
      const order = several ? ", one after another" : "";
      const guess = `The draft guesses ${counted(round.drafted, "token")}${order}. That is cheap.`;
      const check = several ? "The target looks at all of them in one pass, and says how likely each is."
        : "The target looks at it in one pass, and says how likely it is.";
      chips(step("1 Draft", guess), drafted, "k-guess");
      chips(step("2 Check", check), drafted, "k-guess", judgement);
      chips(step("3 Keep or correct", outcome(round, own)), round.tokens, "");
      const [label, box] = toggle(null, "apart-off", "do not open this by itself again");
      box.checked = stored.off;
      box.addEventListener("change", () => { stored.off = box.checked; });
      this.card.replaceChildren(head, steps, label);
      this.card.hidden = false;
    }

    close() {
      this.card.hidden = true;
    }
  }

  window.SpecDemoApart = { create: (tree) => new Apart(tree) };
})();
