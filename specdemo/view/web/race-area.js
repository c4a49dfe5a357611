/*
 * The scrolling text of one lane, of the race view and of the batch view.
 *
 * A plain script that defines `window.SpecDemoArea`; it is loaded after race-tokens.js. Nothing here asks for the
 * layout while text is added: the area is a column in reverse order, which the browser itself keeps at its end, and
 * older text stands in parts that the browser need not lay out again.
 */
(function () {
  "use strict";

  const { ARROWS, make, modified } = window.SpecDemoDom;
  const { records, roundElements } = window.SpecDemoTokens;
  const KEYS = { ...ARROWS, Home: 1, End: -1 };
  /** Tokens after which a part of the text ends, with the next line. */
  const PART = 48;

  /** `add` collects tokens, and `flush` inserts them: for all lanes together, once a frame. */
  class Area {
    constructor(parent, hint, tip) {
      this.area = make("div", "race-tokens", parent, null, {
        "data-role": "tokens", "data-hint": hint, tabindex: 0, role: "group",
      });
      this.text = make("div", "race-text");
      this.tip = tip;
      this.elements = [];
      this.places = [];
      this.prompted = false;
      this.waiting = [];
      this.part = null;
      /** Of each round: its end on the lane's clock, and the number of its first element. */
      this.ends = [];
      this.marked = [];
      this.listen();
    }

    /** Shows the prompt above the output, so that tokens copied from it can point at it. @param {string[]} pieces */
    showPrompt(pieces) {
      if (this.places.length) return;
      const prompt = make("div", "race-prompt", null, null, { "data-role": "prompt" });
      this.places = pieces.map((piece) => make("span", "", prompt, piece));
      this.prompted = true;
      this.text.prepend(prompt);
      this.area.append(this.text);
    }

    /** @param {Round} round  @param {boolean} boundary whether to mark where the round begins */
    add(round, boundary) {
      const places = this.prompted ? this.places : []; // sources count from the prompt's first token
      const elements = roundElements(round, boundary, this.elements.length, places);
      this.ends.push([round.seconds, this.elements.length]);
      this.elements.push(...elements);
      this.places.push(...elements.filter((element) => records.get(element).token.kind !== "rejected"));
      this.waiting.push(...elements);
    }

    /** Drops all rounds but the first ones; nothing waits to be inserted. @param {number} rounds */
    keep(rounds) {
      const from = this.ends[rounds]?.[1];
      if (from === undefined) return;
      const dropped = this.elements.splice(from);
      const kept = dropped.filter((element) => records.get(element).token.kind !== "rejected");
      this.places.length -= kept.length;
      this.ends.length = rounds;
      for (const element of dropped) element.remove();
      for (const part of [...this.text.querySelectorAll(".race-part:empty")]) part.remove();
      this.part = this.text.querySelector(".race-part:last-child");
      if (!this.elements.length && !this.prompted) this.text.remove();
    }

    flush() {
      if (!this.waiting.length) return;
      let some = document.createDocumentFragment();
      for (const element of this.waiting) {
        some.append(element);
        if (!this.endsPart(element, some)) continue;
        this.current().append(some);
        this.part = null;
        some = document.createDocumentFragment();
      }
      if (some.firstChild) this.current().append(some);
      this.waiting = [];
      if (!this.text.parentNode) this.area.append(this.text);
    }

    /** The part that is being written. */
    current() {
      this.part ||= make("div", "race-part", this.text);
      return this.part;
    }

    /** A part may only end where a line does, or its end would be seen. */
    endsPart(element, some) {
      const { kind, text } = records.get(element).token;
      if (!text.endsWith("\n") || kind === "rejected") return false;
      return some.childNodes.length + this.current().childNodes.length >= PART;
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
      area.addEventListener("scroll", () => this.onScroll(), { passive: true });
    }

    /** The text moves away below the tooltip. */
    onScroll() {
      const { tip } = this;
      if (!tip.isIn(this.area)) return;
      if (tip.byKey) tip.place();
      else tip.hide();
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
        && records.get(element).token.round === here.token.round;
      let i = here ? here.index + step : step > 0 ? 0 : elements.length - 1;
      while (elements[i] && (!elements[i].getClientRects().length || sameRound(elements[i]))) i += step;
      return elements[i] || null;
    }
  }

  window.SpecDemoArea = { Area };
})();
