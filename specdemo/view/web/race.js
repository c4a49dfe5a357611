/*
 * The race view: lanes of tokens side by side, their figures, the speed-up, and the reason for it. Of a batch, whose value has
 * `columns`, the titles of its figures, each row has two lanes.
 * It counts what playback at a moment needs; what is said of a run that has ended is in its value.
 *
 * @typedef {{title: string, detail: string, gamma: number, adaptive?: boolean, lossy?: boolean, rule?: string,
 *   weights?: string, prompt?: string[], server?: {line: string, notes: string[]},
 *   reported?: Object<string, ?number>, claims?: Claims}} LaneSpec  `server`: texts about a lane that ran on a server;
 *   `reported`: the figures that the server gave at the end, some of which cannot be counted here
 */

/** Of each figure under a lane's name: its key, label, formula, and how it is written. Those that stand there divide. */
const STATS = [
  ["seconds", "time", "seconds of this lane's own work; the clock stands still while another lane runs", (s) => `${s.toFixed(2)} s`],
  ["tokens", "tokens", "tokens of the output so far; the first comes from the prompt's own pass", String],
  ["tau", "tokens / passes (τ)", "tokens after the first / passes of the target after the prompt's own", ([tokens, passes]) => `${tokens} / ${passes} = ${(tokens / passes).toFixed(2)}`],
  ["acceptance_rate", "accepted", "Σ accepted / Σ drafted tokens", (share) => `${Math.round(100 * share)} %`],
  ["gamma", "mean γ", "Σ drafted tokens / rounds", (gamma) => gamma.toFixed(1)],
];
const RATE_FORMULA = "tokens after the first / (lane time − prefill)";
const WHY_WAITS = {
  loading: "Follows when the run ends.", running: "Follows when the run ends.",
  stopped: "The run ended too early to say.", error: "Nothing was measured.",
  done: "No lane drafts, so there is nothing to explain.",
};
const NOTHING = "–";
/** The beginning of a reason, in bold: its lane, if there are several, and how fast it was against what. */
const LEAD = /^([^:.]{1,60}: )?([\d.,]+× as fast as|\d+% slower than|[Aa]s fast as) [^.,:;]*?(?= because| by|[,:.]|$)/;

const { OVER, count, make, setText, setData, setLead, mounting } = window.SpecDemoDom;
const { SERIES, TokenChart, Timeline, tint } = window.SpecDemoCharts;
const { Area, Figures, buildLegend } = window.SpecDemoTokens;
const { Hero, formatSpeed, formatRatio, speedRatio } = window.SpecDemoHeadline;
const { Moment, Tip } = window.SpecDemoTips;
const FORMATS = {
  tokens_per_second: formatSpeed, ratio: formatRatio, ...Object.fromEntries(STATS.map(([key, , , format]) => [key, format])),
};

/**
 * The figures of a lane; one is null where only the server knows it and has not reported it.
 *
 * @param {?Object<string, ?number>} reported figures of a server, which count instead
 */
function figuresOf({ rounds, first, emitted, drafted, accepted, clock, seconds, streamed, pieces }, reported) {
  const decoded = rounds > 1;
  return {
    tokens_per_second: emitted && seconds > 0 && !pieces ? emitted / seconds : null,
    seconds: clock,
    tokens: rounds && !pieces ? first + emitted : null,
    tau: decoded && !streamed ? [emitted, rounds - 1] : null,
    acceptance_rate: drafted && !streamed ? accepted / drafted : null,
    gamma: decoded ? drafted / (rounds - 1) : null,
    ...reported,
  };
}

/** Whether a lane has this figure: of one that drafts nothing τ is 1. */
function hasStat(key, spec) {
  if (key === "gamma") return Boolean(spec.adaptive);
  return spec.gamma > 0 || key === "seconds" || key === "tokens";
}

/** The card of one lane. */
class Lane {
  /**
   * @param {LaneSpec} spec  @param {number} series number of its line in the chart, 0 if it drafts nothing
   * @param {?string} over title of the lane whose speed its own is divided by; null if that is not shown
   */
  constructor(spec, number, series, over, tip) {
    /** @type {Round[]} what is shown of it */
    this.rounds = [];
    this.stats = {};
    this.series = series;
    this.card = make("section", "race-lane", null, null, { "data-lane": number, "data-plain": series ? "no" : "yes" });
    tint(this.card, SERIES[series]);
    const header = make("header", "", this.card);
    const name = make("div", "race-name", header);
    this.title = make("h3", "", name);
    this.detail = make("span", "race-detail", name);
    this.lossy = make("span", "race-tag", name, "lossy");
    const rate = make("div", "race-rate", header);
    const formula = `tokens/s of this lane / tokens/s of ${over}`;
    if (over) this.stats.ratio = make("span", "race-ratio", rate, NOTHING, { "data-stat": "ratio", title: formula });
    this.stats.tokens_per_second = make("b", "", rate, NOTHING, { "data-stat": "tokens_per_second", title: RATE_FORMULA });
    make("span", "", rate, "tok/s");
    const meta = make("dl", "race-meta", this.card);
    for (const [key, label, formula] of STATS.filter(([stat]) => hasStat(stat, spec))) {
      const stat = make("div", "", meta, null, { title: formula });
      make("dt", "", stat, label);
      this.stats[key] = make("dd", "", stat, NOTHING, { "data-stat": key });
    }
    if (spec.server) this.served = make("div", "race-served", this.card, null, { "data-role": "served" });
    this.text = new Area(this.card, spec.hint || "", tip);
    this.describe(spec);
  }

  /** Shows the lane's name and settings, which may become more exact during a run. */
  describe(spec) {
    this.spec = spec;
    setText(this.title, spec.title);
    setText(this.detail, spec.detail || "");
    this.lossy.hidden = !spec.lossy;
    const label = `${spec.title}: tokens. Left and right arrows go from token to token, up and down from round to round.`;
    this.text.area.setAttribute("aria-label", label);
    this.text.rule = spec.rule;
    if (spec.prompt) this.text.showPrompt(spec.prompt);
    if (spec.server) this.describeServer(spec.server);
  }

  /** Whose clock the lane has and what its server reported; below that, what did not add up or broke off. */
  describeServer({ line, notes }) {
    const texts = [line, ...notes].join("\n");
    if (texts === this.serverTexts) return;
    this.serverTexts = texts;
    const clock = make("p", "race-clock");
    for (const part of line.split(" · ")) make("span", "", clock, part);
    this.served.replaceChildren(clock, ...notes.map((note) => make("p", "race-note", null, note)));
  }

  /** Counts the rounds; figures that a server reported are of the whole run. */
  count(over) {
    const tally = count(this.rounds);
    const figures = figuresOf(tally, over && this.spec.reported);
    this.tally = { ...tally, figures, speed: figures.tokens_per_second };
  }

  refresh(first, running, doubt) {
    const figures = { ...this.tally.figures, ratio: doubt ? null : speedRatio(this, first) };
    for (const key in this.stats) {
      setText(this.stats[key], figures[key] || figures[key] === 0 ? FORMATS[key](figures[key]) : NOTHING);
    }
    setData(this.card, "running", running && !this.tally.stop && "yes");
    setData(this.text.area, "end", this.tally.stop);
  }
}

class View {
  constructor(root) {
    this.root = root;
    this.lanes = [];
    this.frame = make("div", "specdemo-race");
    this.tip = new Tip(this.frame);
    this.hero = new Hero(this.frame);
    this.laneRow = make("div", "race-lanes", this.frame);
    this.legend = buildLegend(this.frame, this.tip);
    this.tree = new window.SpecDemoRounds.TreeCard(this.frame, this.legend);
    this.frame.append(this.tree.card);
    this.below = make("div", "race-below", this.frame);
    this.chart = new TokenChart(this.below);
    const reason = make("section", "race-card", this.below);
    make("h3", "", reason, "Why");
    this.why = make("div", "race-why", reason, null, { "data-role": "why" });
    this.after = make("div", "race-after", this.frame);
    this.timeline = new Timeline(this.after);
    this.figures = new Figures(this.after, "figures");
    this.moment = new Moment(this, [this.chart.host, this.timeline.host]);
    this.update(null);
  }

  /** Shows `value`, and adds those of its rounds that are new. Before its lanes are known, those before stand empty. */
  update(value) {
    if (this.frame.parentNode !== this.root) this.root.replaceChildren(this.frame);
    const rounds = value?.rounds || [];
    const specs = value?.lanes?.length ? value.lanes : this.lanes.map(({ spec }) => ({ ...spec, server: null, reported: null }));
    const run = value ? value.run : null;
    if (run !== this.run || specs.length !== this.lanes.length) this.begin(run, specs, value?.columns);
    if (rounds.length < this.seen) { // back to an earlier moment
      this.reset();
      this.lanes.forEach((lane) => lane.text.clear());
    }
    this.lanes.forEach((lane, i) => lane.describe(specs[i]));
    rounds.slice(this.seen).forEach((round) => this.addRound(round));
    this.seen = rounds.length;
    this.lanes.forEach((lane) => lane.text.flush());
    const phase = value ? value.phase : "idle";
    this.chart.grow(OVER.has(phase));
    setData(this.frame, "phase", phase);
    const empty = phase === "error" && !rounds.length; // nothing is left to be seen of such a run
    this.laneRow.hidden = empty;
    this.below.hidden = phase === "idle" || empty;
    this.legend.hidden = empty || !specs.some((spec) => spec.gamma > 0);
    this.refreshLanes(phase, value?.headline?.doubt);
    this.hero.show(value, phase, this.lanes);
    this.showWhy(value?.why, phase, value?.seenAgain);
    if (!this.over) this.figures.show(value?.columns || specs.map((spec) => spec.title), value?.figures || []);
    if (OVER.has(phase) && !this.over) this.finish();
    this.over = OVER.has(phase);
  }

  begin(run, specs, columns) {
    this.run = run;
    let series = 0;
    // The speed-up of two lanes or of a batch stands above them; of more lanes, each shows its own over the first plain one.
    this.base = Math.max(0, specs.findIndex((spec) => spec.gamma === 0 && !spec.server));
    const over = (i) => (specs.length > 2 && !columns && i !== this.base ? specs[this.base].title : null);
    const seriesOf = (spec) => (spec.gamma === 0 ? 0 : columns ? 1 : ++series);
    this.lanes = specs.map((spec, i) => new Lane(spec, i, seriesOf(spec), over(i), this.tip));
    this.laneRow.replaceChildren(...this.lanes.map((lane) => lane.card));
    setData(this.laneRow, "lanes", specs.length);
    this.tree.begin(this.lanes);
    this.chart.lanes = this.lanes;
    this.reset();
  }

  /** Forgets all rounds but the lanes' texts. */
  reset() {
    this.tip.hide();
    this.seen = 0;
    this.over = false;
    this.after.hidden = true;
    this.tree.forget();
    for (const lane of this.lanes) lane.rounds = [];
  }

  addRound(round) {
    const lane = this.lanes[round.lane];
    lane.rounds.push(round);
    this.tree.add(round);
    lane.text.add(round, lane.spec.gamma > 0 && round.index > 0 && !round.streamed); // a chunk is no round
  }

  /** The figures of all lanes; those that servers report count once the run has ended. */
  refreshLanes(phase, doubt) {
    this.lanes.forEach((lane) => lane.count(OVER.has(phase)));
    this.lanes.forEach((lane) => lane.refresh(this.lanes[this.base], phase === "running", doubt));
    this.frame.querySelector('[data-kind="streamed"]').hidden = !this.lanes.some((lane) => lane.tally.streamed);
  }

  /** The reasons, a line each. */
  showWhy(why, phase, seenAgain) {
    setData(this.why, "empty", !why && "yes");
    const text = why || (seenAgain ? "Shown when the replay reaches its end." : WHY_WAITS[phase]) || "";
    if (this.reasons === text) return;
    this.reasons = text;
    this.why.replaceChildren(...text.split("\n").map((line) => {
      const paragraph = make("p");
      setLead(paragraph, line, LEAD);
      return paragraph;
    }));
  }

  /** Draws what belongs to the end of a run. */
  finish() {
    this.timeline.card.hidden = !this.timeline.finish(this.lanes);
    this.after.hidden = this.timeline.card.hidden && this.figures.card.hidden;
  }
}

window.SpecDemoRace = { mount: mounting(View) };
