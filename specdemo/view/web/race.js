/*
 * The race view: lanes of tokens side by side, their figures, the speed-up, and the reason for it.
 *
 * A plain script that defines `window.SpecDemoRace`. It knows nothing of Gradio, so the same file serves the app and
 * exported pages.
 *
 * @typedef {{title: string, detail: string, gamma: number, adaptive?: boolean, lossy?: boolean,
 *   weights?: string, prompt?: string[], server?: {line: string, notes: string[]},
 *   told?: Object<string, ?number>}} LaneSpec  `server`: texts about a lane that ran on a server; `told`: the figures
 *   that the server reported at the end, some of which cannot be counted here
 */
(function () {
  "use strict";

  const IDLE_LANES = [
    { title: "Plain", detail: "target only", gamma: 0, hint: "The target writes one token in each pass." },
    { title: "Speculative", detail: "draft and target", gamma: 1,
      hint: "The draft guesses several tokens; the target checks them in one pass." },
  ];
  const STATS = [
    ["seconds", "time", "seconds of this lane's own work; the clock stands still while another lane runs"],
    ["tokens", "tokens", "tokens of the output so far"],
    ["passes", "passes", "forwards of the target, the prefill included"],
    ["tau", "tokens per pass (τ)", "tokens after the first / target forwards after the prefill"],
    ["acceptance_rate", "accepted", "Σ accepted / Σ drafted tokens"],
    ["gamma", "mean γ", "Σ drafted tokens / rounds"],
  ];
  const RATE_FORMULA = "tokens after the first / (lane time − prefill)";
  const WHY_WAITS = {
    loading: "Follows when the run ends.", running: "Follows when the run ends.",
    stopped: "The run ended too early to say.", error: "Nothing was measured.",
    done: "No lane drafts, or there were too few rounds to say why.",
  };
  const NOTHING = "–";
  /** The beginning of a reason, in bold: its lane, if there are several, and how fast it was against what. */
  const LEAD = /^([^:.]{1,60}: )?([\d.,]+× over|\d+% slower than|[Aa]s fast as) [^.,:;]*?(?= because| by| even| with|$)/;

  const {
    OVER, Notice, make, setText, setData, setHidden, setLead, parseRounds, keptTokens, mounting,
  } = window.SpecDemoDom;
  const { Figures, Tip, buildLegend, onCopy } = window.SpecDemoTokens;
  const { Area } = window.SpecDemoArea;
  const { Hero, formatSpeed, formatRatio } = window.SpecDemoVerdict;

  // ---- figures -------------------------------------------------------------------------------------------------

  /** What is counted of one lane. Round 0 is the prefill, which is no part of the decoding speed. */
  class Tally {
    clock = 0;
    prefill = 0;
    passes = 0;
    kept = 0;
    emitted = 0;
    decodeRounds = 0;
    drafted = 0;
    accepted = 0;
    stop = null;
    /** A server streams chunks, not rounds; without ids they are pieces of text, not tokens. */
    streamed = false;
    pieces = false;
    /** The figures of a server, once the run has ended. */
    told = null;

    count(round) {
      const kept = keptTokens(round);
      this.passes += 1;
      this.kept += kept;
      this.clock = round.seconds;
      this.stop = round.stop || this.stop;
      this.streamed ||= round.tokens.some((token) => token.kind === "streamed");
      this.pieces ||= round.tokens.some((token) => token.kind !== "rejected" && token.id === undefined);
      if (round.index === 0) {
        this.prefill = round.seconds;
        return;
      }
      this.decodeRounds += 1;
      this.emitted += kept;
      this.drafted += round.drafted;
      this.accepted += round.accepted;
    }

    /** Decoded tokens per second, or null while there is nothing to measure. */
    get speed() {
      if (this.told) return this.told.tokens_per_second;
      const seconds = this.clock - this.prefill;
      return this.emitted && seconds > 0 && !this.pieces ? this.emitted / seconds : null;
    }

    /** The figures by name; null where only the server knows them and has not reported them. */
    figures() {
      if (this.told) return this.told;
      const counted = this.passes > 0;
      const rounds = this.streamed ? 0 : this.decodeRounds;
      return {
        seconds: counted ? this.clock : null,
        tokens: counted && !this.pieces ? this.kept : null,
        passes: counted && !this.streamed ? this.passes : null,
        tau: rounds ? this.emitted / rounds : null,
        acceptance_rate: this.drafted && !this.streamed ? this.accepted / this.drafted : null,
      };
    }
  }

  /** The texts of a lane's figures. */
  function laneFigures(tally, spec, first) {
    const written = (value, format) => (typeof value === "number" ? format(value) : NOTHING);
    const { seconds, tokens, passes, tau, acceptance_rate } = tally.figures();
    const rated = tally.speed !== null && first.speed !== null;
    return {
      tokens_per_second: written(tally.speed, formatSpeed),
      seconds: written(seconds, (s) => s.toFixed(2) + " s"),
      tokens: written(tokens, String),
      passes: written(passes, String),
      tau: written(tau, (t) => t.toFixed(2)),
      acceptance_rate: written(spec.gamma > 0 ? acceptance_rate : null, (share) => Math.round(100 * share) + " %"),
      gamma: tally.decodeRounds ? (tally.drafted / tally.decodeRounds).toFixed(1) : NOTHING,
      ratio: rated ? formatRatio(tally.speed / first.speed) : NOTHING,
    };
  }

  // ---- a lane --------------------------------------------------------------------------------------------------

  /** Whether a lane has this figure: of one that drafts nothing, passes are tokens, and τ is 1. */
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
      this.tally = new Tally();
      this.stats = {};
      this.series = series;
      this.card = make("section", "race-lane", null, null, { "data-lane": number, "data-series": series });
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
      const renamed = spec.title !== this.spec?.title;
      this.spec = spec;
      setText(this.title, spec.title);
      setText(this.detail, spec.detail || "");
      setHidden(this.lossy, !spec.lossy);
      const label = `${spec.title}: tokens. Left and right arrows go from token to token, up and down from round to round.`;
      if (renamed) this.text.area.setAttribute("aria-label", label);
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

    /** Shows the figures, and whether the lane still runs. */
    refresh(first, running) {
      const figures = laneFigures(this.tally, this.spec, first.tally);
      for (const key in this.stats) setText(this.stats[key], figures[key]);
      setData(this.card, "running", running && !this.tally.stop && "yes");
      setData(this.text.area, "end", this.tally.stop);
    }
  }

  // ---- the page ------------------------------------------------------------------------------------------------

  /** A card with a chart: its heading, the keys of its lines, and the button that saves it. */
  function buildChartCard(parent, heading, className, role) {
    const card = make("section", "race-card", parent);
    const head = make("div", "race-card-head", card);
    const title = make("h3", "", head, heading);
    const keys = make("div", "race-lines", head);
    head.append(window.SpecDemoPng.button());
    const ground = make("div", "race-plot", card);
    return { card, title, keys, plot: make("div", className, ground, null, { "data-role": role }) };
  }

  function lineKey(parent, name, className, series) {
    make("span", className, parent, name, series === undefined ? {} : { "data-series": series }).prepend(make("i"));
  }

  class View {
    constructor(root) {
      this.root = root;
      this.frame = make("div", "specdemo-race");
      this.frame.addEventListener("copy", onCopy);
      this.tip = new Tip(this.frame);
      this.hero = new Hero(this.frame);
      this.laneRow = make("div", "race-lanes", this.frame);
      this.legend = buildLegend(this.frame, this.tip);
      this.tree = window.SpecDemoTree.create(this.frame, this.legend);
      this.frame.append(this.tree.card);
      this.buildBelow();
      this.buildAfter();
      const plots = [this.chart.host, this.timeline.host];
      window.SpecDemoMoment.link(this.frame, plots, () => this.lanes, () => this.over);
      this.update(null);
    }

    /** Under the lanes: the chart, and the reason. */
    buildBelow() {
      this.below = make("div", "race-below", this.frame);
      const card = buildChartCard(this.below, "", "race-chart", "chart");
      this.keys = card.keys;
      this.chart = window.SpecDemoChart.create(card);
      const reason = make("section", "race-card", this.below);
      make("h3", "", reason, "Why");
      this.why = make("div", "race-why", reason, null, { "data-role": "why" });
    }

    /** What is shown only after a run: where the time went, and all figures. */
    buildAfter() {
      this.after = make("div", "race-after", this.frame);
      this.timing = buildChartCard(this.after, "", "race-timeline", "timeline");
      this.timeline = window.SpecDemoTimeline.create(this.timing.plot);
      for (const name of window.SpecDemoTimeline.phases) lineKey(this.timing.keys, name, "phase-" + name.split(" ")[0]);
      this.figures = new Figures(this.after, "figures");
    }

    /** Shows `value`, and adds those of its rounds that are new. */
    update(value) {
      if (this.frame.parentNode !== this.root) this.root.replaceChildren(this.frame);
      const rounds = value?.rounds || [];
      const specs = value?.lanes?.length ? value.lanes : IDLE_LANES;
      const run = value ? String(value.run) : null;
      if (run !== this.run || specs.length !== this.lanes.length) this.begin(run, specs);
      if (rounds.length < this.seen) this.rewind(specs, rounds);
      this.lanes.forEach((lane, i) => lane.describe(specs[i]));
      parseRounds(rounds.slice(this.seen)).forEach((round) => this.addRound(round));
      this.seen = rounds.length;
      this.lanes.forEach((lane) => lane.text.flush());
      const phase = value ? value.phase : "idle";
      setData(this.frame, "phase", phase);
      setHidden(this.below, phase === "idle");
      setHidden(this.legend, !specs.some((spec) => spec.gamma > 0));
      this.refreshLanes(specs, phase);
      this.hero.show(value, phase, this.lanes);
      this.showWhy(value?.why, phase, value?.seenAgain);
      if (!this.over) this.figures.show(specs.map((spec) => spec.title), value?.figures || []);
      if (OVER.has(phase) && !this.over) this.finish();
      this.over = OVER.has(phase);
    }

    /** Clears the page for a new run. */
    begin(run, specs) {
      this.tip.hide();
      this.run = run;
      this.seen = 0;
      this.over = false;
      let series = 0;
      // The speed-up of two lanes stands above them; of more, each shows its own over the first plain one.
      this.base = Math.max(0, specs.findIndex((spec) => spec.gamma === 0 && !spec.server));
      const over = (i) => (specs.length > 2 && i !== this.base ? specs[this.base].title : null);
      this.lanes = specs.map((spec, i) => new Lane(spec, i, spec.gamma > 0 ? ++series : 0, over(i), this.tip));
      this.laneRow.replaceChildren(...this.lanes.map((lane) => lane.card));
      setData(this.laneRow, "lanes", specs.length);
      this.keys.replaceChildren();
      this.tree.begin(this.lanes);
      for (const lane of this.lanes) lineKey(this.keys, lane.spec.title, "", lane.series);
      this.chart.begin(run === null ? [] : specs);
      this.timeline.begin(specs);
      this.after.hidden = true;
    }

    addRound(round) {
      const lane = this.lanes[round.lane];
      if (!lane) return;
      this.count(lane, round);
      this.tree.add(round);
      const streamed = round.tokens.some((token) => token.kind === "streamed"); // a chunk is no round
      lane.text.add(round, lane.spec.gamma > 0 && round.index > 0 && !streamed);
    }

    count({ tally }, round) {
      tally.count(round);
      if (!tally.pieces) this.chart.add(round.lane, tally.clock, tally.kept, Boolean(round.stop));
      this.timeline.add(round.lane, round);
    }

    /** Goes back to the first rounds of the same run: a lane's text only loses its end. */
    rewind(specs, rounds) {
      this.tip.hide();
      this.over = false;
      this.after.hidden = true;
      this.chart.begin(specs);
      this.timeline.begin(specs);
      this.tree.forget();
      for (const lane of this.lanes) lane.tally = new Tally();
      for (const round of parseRounds(rounds)) {
        this.count(this.lanes[round.lane], round);
        this.tree.add(round);
      }
      for (const lane of this.lanes) lane.text.keep(lane.tally.passes);
      this.seen = rounds.length;
    }

    /** The figures of all lanes; those that servers report count once the run has ended. */
    refreshLanes(specs, phase) {
      this.lanes.forEach((lane, i) => { lane.tally.told = OVER.has(phase) ? specs[i].told || null : null; });
      this.lanes.forEach((lane) => lane.refresh(this.lanes[this.base], phase === "running"));
      setHidden(this.frame.querySelector('[data-kind="streamed"]'), !this.lanes.some((lane) => lane.tally.streamed));
    }

    /** The reasons, a line each. */
    showWhy(why, phase, seenAgain) {
      setData(this.why, "empty", !why && "yes");
      const text = why || (seenAgain ? "Stands at the end of the run." : WHY_WAITS[phase]) || "";
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
      this.chart.finish();
      this.after.hidden = false; // first, since Plotly measures the element that it draws in
      this.timing.card.hidden = !this.timeline.draw();
      const { size } = this.timeline;
      setText(this.timing.title, "Where the time went" + (size > 1 ? `, ${size} rounds at a time` : ""));
      this.after.hidden = this.timing.card.hidden && this.figures.card.hidden;
    }
  }

  window.SpecDemoRace = { mount: mounting(View) };
})();
