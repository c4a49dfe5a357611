/*
 * The batch view: one line for each row, with its text decoded plainly and drafted, and the figures of both batches. Its
 * value is a race's, with both batches as lanes, the rows' prompts, and the JSON of each round.
 */

const ENDS = { eos: "end of text", length: "full length", context: "context full" };
const SPEEDUP_FORMULA = "tokens/s of the drafted batch / tokens/s of the plain one";
/** Of the verdict, no part is bold. */
const NO_LEAD = /^/;

const { Notice, OVER, count, counted, make, setText, setData, mounting } = window.SpecDemoDom;
const { SERIES, tint } = window.SpecDemoCharts;
const { Area, Figures, buildLegend, onCopy } = window.SpecDemoTokens;
const { Tip } = window.SpecDemoTips;

/** One row of one batch. */
class Cell {
  constructor(parent, spec, number, tip) {
    this.drafts = spec.gamma > 0;
    this.cell = make("div", "batch-cell", parent);
    tint(this.cell, SERIES[Number(this.drafts)]);
    this.text = new Area(this.cell, "", tip);
    this.text.area.setAttribute("aria-label", `Row ${number + 1}, ${spec.title}: tokens`);
    this.note = make("p", "batch-note", this.cell, " ");
    this.rounds = [];
  }

  add(round) {
    this.rounds.push(round);
    this.text.add(round, this.drafts && round.index > 0);
  }

  /** @param {{row: number, drafted: number}[]} leaders of the batch by round */
  refresh(leaders, running) {
    this.tally = count(this.rounds);
    setText(this.note, this.describe(leaders[this.rounds.at(-1)?.index], running) || " ");
    setData(this.cell, "ended", Boolean(this.tally.stop));
    setData(this.cell, "running", running && this.rounds.length && !this.tally.stop);
  }

  /** What the row does: how fast it was, which row it waits for, or when it ended. */
  describe(leader, running) {
    const { rounds, emitted, seconds, clock, stop } = this.tally;
    if (!rounds) return "";
    const parts = [counted(emitted + 1, "token")];
    if (seconds > 0) parts.push(`${(emitted / seconds).toFixed(0)} tok/s`);
    if (stop) parts.push(`${ENDS[stop] || stop} at ${clock.toFixed(2)} s`);
    else if (!running) parts.push("stopped");
    else if (leader.drafted > this.rounds.at(-1).drafted) parts.push(`waits while row ${leader.row + 1} drafts ${leader.drafted}`);
    return parts.join(" · ");
  }
}

class View {
  constructor(root) {
    this.root = root;
    this.frame = make("div", "specdemo-race specdemo-batch");
    this.frame.addEventListener("copy", onCopy);
    this.tip = new Tip(this.frame);
    this.hero = make("div", "race-hero", this.frame);
    this.speedup = make("strong", "race-speedup", this.hero, "", { "data-role": "batch-speedup", title: SPEEDUP_FORMULA });
    const claim = make("div", "race-claim", this.hero);
    this.totals = make("p", "race-comparison", claim, "", { "data-role": "batch-totals" });
    this.verdict = new Notice(claim, "batch-verdict", "race-verdict");
    this.why = make("p", "batch-why", this.frame, "", { "data-role": "batch-why" });
    this.grid = make("div", "batch-grid", this.frame, null, { role: "list" });
    buildLegend(this.frame, this.tip);
    this.figures = new Figures(this.frame, "batch-figures");
    this.update(null);
  }

  /** Shows `value`, and adds those of its rounds that are new. @param {?object} value */
  update(value) {
    if (this.frame.parentNode !== this.root) this.root.replaceChildren(this.frame);
    this.frame.hidden = !value;
    if (!value) return;
    if (value.run !== this.run) this.begin(value);
    const running = !OVER.has(value.phase);
    setData(this.frame, "phase", value.phase);
    value.rounds.slice(this.seen).map((text) => JSON.parse(text)).forEach((round) => this.addRound(round));
    this.seen = value.rounds.length;
    this.cells((cell) => cell.text.flush());
    this.cells((cell, contender) => cell.refresh(this.leaders[contender], running));
    this.showTotals(value, running);
    const { figures } = value;
    this.figures.show(value.lanes.slice(0, figures[0]?.values.length).map((each) => each.title), figures);
  }

  cells(act) {
    this.rows.forEach((cells) => cells.forEach(act));
  }

  begin(value) {
    this.tip.hide();
    this.run = value.run;
    this.seen = 0;
    /** For each batch and round: the row with the longest draft, and the length of that draft. */
    this.leaders = value.lanes.map(() => []);
    const head = make("div", "batch-head");
    make("span", "", head, "row");
    for (const contender of value.lanes) {
      const name = make("span", "", head, contender.title + " ");
      make("small", "", name, contender.detail + (contender.lossy ? ", lossy" : ""));
    }
    this.grid.replaceChildren(head);
    this.rows = value.prompts.map((prompt, number) => {
      const line = make("div", "batch-row", this.grid, null, { role: "listitem", "data-row": number });
      const label = make("div", "batch-label", line, null, { title: prompt });
      make("b", "", label, String(number + 1));
      make("span", "", label, prompt.trim().replace(/\s+/g, " "), { dir: "auto" });
      return value.lanes.map((contender) => new Cell(line, contender, number, this.tip));
    });
  }

  addRound(round) {
    const contender = Math.floor(round.lane / this.rows.length);
    const row = round.lane % this.rows.length;
    const leaders = this.leaders[contender];
    const longest = leaders[round.index]?.drafted ?? -1;
    if (round.drafted > longest) leaders[round.index] = { row, drafted: round.drafted };
    this.rows[row][contender].add(round);
  }

  /** Tokens per second of both batches so far: all rows' tokens after the first, over the clock that they share. */
  showTotals(value, running) {
    const rates = value.lanes.map((contender, i) => {
      const tallies = this.rows.map((row) => row[i].tally).filter((tally) => tally.rounds);
      const emitted = tallies.reduce((sum, tally) => sum + tally.emitted, 0);
      const seconds = Math.max(0, ...tallies.map((tally) => tally.seconds));
      return seconds > 0 && emitted ? `${contender.title} ${(emitted / seconds).toFixed(0)} tok/s` : null;
    });
    const known = rates.filter(Boolean);
    const rows = this.rows.length > 1 ? `All ${this.rows.length} rows together` : "The row";
    setText(this.totals, known.length ? `${rows}: ${known.join(", ")}` : "");
    const ratio = value.headline?.ratio;
    setText(this.speedup, ratio ? `${ratio.toFixed(2)}×` : "");
    setData(this.speedup, "trend", ratio < 1 ? "slower" : "faster");
    this.speedup.hidden = !ratio && !running;
    this.verdict.showVerdict(value.verdict, NO_LEAD);
    setText(this.why, value.why || "");
    this.why.hidden = !value.why;
    this.hero.hidden = !known.length && !running;
  }
}

window.SpecDemoBatch = { mount: mounting(View) };
