/*
 * The batch view: one line a row, its text decoded plainly and drafted, and the figures of both batches.
 *
 * A plain script that defines `window.SpecDemoBatch`; it draws tokens with race-tokens.js, which is loaded before
 * it. Prompts and model text are untrusted: they only ever become text nodes.
 *
 * @typedef {{title: string, detail: string, gamma: number, lossy?: boolean}} Contender
 * @typedef {{run: string, phase: string, prompts: string[], contenders: Contender[], speedup: ?number,
 *   verdict: ?{kind: string, text: string}, why: ?string, figures: object[], rounds: string[]}} Batch
 */
(function () {
  "use strict";

  const ENDS = { eos: "end of text", length: "full length", context: "context full" };
  const VERDICT_ICONS = { identical: "✓", tie: "≈", sampled: "∼", partial: "…", diverged: "≠" };
  const mounted = new WeakMap();
  const make = (...args) => window.SpecDemoTokens.make(...args);

  function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  // ---- one row of one batch ------------------------------------------------------------------------------------

  function createCell(parent, contender, number, tip) {
    const cell = make("div", "batch-cell", parent, null, { "data-series": contender.gamma > 0 ? 1 : 0 });
    const label = `Row ${number + 1}, ${contender.title}: tokens`;
    const text = window.SpecDemoTokens.createArea(cell, "", tip);
    text.area.setAttribute("aria-label", label);
    return { cell, text, note: make("p", "batch-note", cell, " "), emitted: 0, begun: null, seconds: 0, last: null };
  }

  function addRound(cell, round, boundary) {
    const kept = round.tokens.filter((token) => token.kind !== "rejected").length;
    if (round.index === 0) cell.begun = round.seconds;
    else cell.emitted += kept;
    cell.seconds = round.seconds;
    cell.last = round;
    cell.text.add(round, boundary && round.index > 0);
  }

  /** What a row does: how fast it was, whom it waits for, or when it ended. */
  function noteOf(cell, leader, running) {
    const { last } = cell;
    if (!last) return "";
    const time = cell.seconds - cell.begun;
    const parts = [cell.emitted ? `${cell.emitted + 1} tokens` : "1 token"];
    if (time > 0) parts.push(`${(cell.emitted / time).toFixed(0)} tok/s`);
    if (last.stop) parts.push(`${ENDS[last.stop] || last.stop} at ${cell.seconds.toFixed(2)} s`);
    else if (!running) parts.push("stopped");
    else if (leader && leader.drafted > last.drafted) parts.push(`waits while row ${leader.row + 1} drafts ${leader.drafted}`);
    return parts.join(" · ");
  }

  // ---- the view ------------------------------------------------------------------------------------------------

  class View {
    constructor(root) {
      this.root = root;
      this.frame = make("div", "specdemo-race specdemo-batch");
      this.hero = make("div", "batch-hero", this.frame);
      this.speedup = make("strong", "", this.hero, "", { "data-role": "batch-speedup",
        title: "tokens/s of the drafted batch / tokens/s of the plain one" });
      const claim = make("div", "", this.hero);
      this.totals = make("p", "batch-totals", claim, "", { "data-role": "batch-totals" });
      this.verdict = make("p", "race-verdict", claim, null, { "data-role": "batch-verdict", role: "status" });
      this.icon = make("span", "race-icon", this.verdict, null, { "aria-hidden": "true" });
      this.judged = make("span", "", this.verdict);
      this.why = make("p", "batch-why", this.frame, "", { "data-role": "batch-why" });
      this.grid = make("div", "batch-grid", this.frame, null, { role: "list" });
      this.toggle = window.SpecDemoTokens.buildLegend(this.frame);
      this.toggle.addEventListener("change", () => this.showRejected(this.toggle.checked));
      this.figures = make("details", "race-card race-figures", this.frame);
      make("summary", "", this.figures, "All figures, and how they are computed");
      this.table = make("table", "", this.figures, null, { "data-role": "batch-figures" });
      this.tip = window.SpecDemoTokens.createTip(this.frame);
      this.frame.addEventListener("copy", window.SpecDemoTokens.onCopy);
      document.addEventListener("pointerdown", (event) => {
        if (!event.target.closest('[data-role="tokens"]')) this.tip.hide();
      });
      this.run = undefined;
      this.update(null);
    }

    /** Shows `value`; of its rounds only those that are new are added. @param {?Batch} value */
    update(value) {
      if (this.frame.parentNode !== this.root) this.root.replaceChildren(this.frame);
      this.frame.hidden = !value;
      if (!value) return;
      if (value.run !== this.run || value.rounds.length < this.seen) this.begin(value);
      this.append(value.rounds);
      const running = value.phase === "running" || value.phase === "loading";
      this.frame.dataset.phase = value.phase;
      this.rows.forEach((cells) => cells.forEach((cell, i) => this.refresh(cell, i, running)));
      this.showTotals(value, running);
      this.showFigures(value);
      this.rows.forEach((cells) => cells.forEach((cell) => cell.text.scroll()));
    }

    begin(value) {
      this.tip.hide();
      this.run = value.run;
      this.seen = 0;
      /** Of each batch, by round: the longest draft, and whose it is. */
      this.leaders = value.contenders.map(() => []);
      const head = make("div", "batch-head");
      make("span", "", head, "row");
      for (const contender of value.contenders) {
        const name = make("span", "", head, contender.title + " ");
        make("small", "", name, contender.detail + (contender.lossy ? ", lossy" : ""));
      }
      this.rows = [];
      const lines = value.prompts.map((prompt, number) => {
        const line = make("div", "batch-row", null, null, { role: "listitem", "data-row": number });
        const label = make("div", "batch-label", line, null, { title: prompt });
        make("b", "", label, String(number + 1));
        make("span", "", label, prompt.trim().replace(/\s+/g, " "), { dir: "auto" });
        this.rows.push(value.contenders.map((contender) => createCell(line, contender, number, this.tip)));
        return line;
      });
      this.grid.replaceChildren(head, ...lines);
    }

    append(items) {
      for (; this.seen < items.length; this.seen++) {
        for (const round of JSON.parse(items[this.seen])) this.addRound(round);
      }
      this.rows.forEach((cells) => cells.forEach((cell) => cell.text.flush()));
    }

    addRound(round) {
      const contender = Math.floor(round.lane / this.rows.length);
      const row = round.lane % this.rows.length;
      const leaders = this.leaders[contender];
      if (!leaders[round.index] || leaders[round.index].drafted < round.drafted) {
        leaders[round.index] = { row, drafted: round.drafted };
      }
      addRound(this.rows[row][contender], round, contender > 0);
    }

    refresh(cell, contender, running) {
      const leader = cell.last ? this.leaders[contender][cell.last.index] : null;
      setText(cell.note, noteOf(cell, leader, running) || " ");
      const ended = Boolean(cell.last && cell.last.stop);
      cell.cell.toggleAttribute("data-ended", ended);
      cell.cell.toggleAttribute("data-running", running && Boolean(cell.last) && !ended);
    }

    /** Tokens a second of both batches so far: all rows' tokens after the first, over the clock that they share. */
    showTotals(value, running) {
      const rates = value.contenders.map((contender, i) => {
        const cells = this.rows.map((row) => row[i]).filter((cell) => cell.last);
        const emitted = cells.reduce((sum, cell) => sum + cell.emitted, 0);
        const time = Math.max(0, ...cells.map((cell) => cell.seconds)) - (cells.length ? cells[0].begun : 0);
        return time > 0 && emitted ? `${contender.title} ${(emitted / time).toFixed(0)} tok/s` : null;
      });
      const known = rates.filter(Boolean);
      const rows = this.rows.length > 1 ? `All ${this.rows.length} rows together` : "The row";
      setText(this.totals, known.length ? `${rows}: ${known.join(", ")}` : "");
      setText(this.speedup, value.speedup ? `${value.speedup.toFixed(2)}×` : "");
      this.speedup.toggleAttribute("data-slow", Boolean(value.speedup) && value.speedup < 1);
      this.speedup.hidden = !value.speedup && !running;
      const { verdict } = value;
      this.verdict.hidden = !verdict;
      this.verdict.dataset.kind = verdict ? verdict.kind : "";
      this.icon.dataset.icon = verdict ? VERDICT_ICONS[verdict.kind] || "" : "";
      setText(this.judged, verdict ? verdict.text : "");
      setText(this.why, value.why || "");
      this.why.hidden = !value.why;
      this.hero.hidden = !known.length && !running;
    }

    showRejected(shown) {
      this.tip.hide();
      this.frame.classList.toggle("hide-rejected", !shown);
    }

    showFigures(value) {
      this.figures.hidden = !value.figures.length;
      if (!value.figures.length) return;
      const shown = value.contenders.slice(0, value.figures[0].values.length);
      window.SpecDemoTokens.fillFigures(this.table, shown.map((contender) => contender.title), value.figures);
    }
  }

  /** The view in `root`, made at the first call. */
  function mount(root) {
    if (!mounted.has(root)) mounted.set(root, new View(root));
    return mounted.get(root);
  }

  window.SpecDemoBatch = { mount };
})();
