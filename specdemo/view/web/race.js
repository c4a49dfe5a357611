/*
 * The race view: lanes of tokens side by side, their figures, the speed-up, and why.
 *
 * A plain script that defines `window.SpecDemoRace`. It knows nothing of Gradio, so the same file plays inside
 * the app and inside an exported page. Prompts and model text are untrusted: they only ever become text nodes.
 *
 * @typedef {{id: number, text: string, kind: string, round: number, position: number, p: ?number, q: ?number,
 *   acceptance: ?number, seconds: number}} Token
 * @typedef {{lane: number, index: number, drafted: number, accepted: number, seconds: number, stop: ?string,
 *   source: ?number, tokens: Token[]}} Round
 * @typedef {{title: string, detail: string, gamma: number, adaptive?: boolean, lossy?: boolean,
 *   weights?: string, prompt?: string[], server?: {line: string, notes: string[]},
 *   told?: Object<string, ?number>}} LaneSpec  `server`: what is said of a lane that ran on one; `told`: its figures,
 *   once it has ended, of which some cannot be counted here
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
    ["passes", "target passes", "forwards of the target, the prefill included"],
    ["tau", "τ", "tokens after the first / target forwards after the prefill"],
    ["acceptance_rate", "accepted", "Σ accepted / Σ drafted tokens"],
    ["gamma", "mean γ", "Σ drafted tokens / rounds"],
  ];
  const RATE_FORMULA = "tokens after the first / (lane time − prefill)";
  const RATIO_FORMULA = "tokens/s of this lane / tokens/s of the first lane";
  const HERO_FORMULA = "tokens/s of the fastest other lane / tokens/s of the first lane, both measured in this run";
  const ENDS = { eos: "end of text", context: "context full" };
  const VERDICT_ICONS = { identical: "✓", tie: "≈", diverged: "≠", sampled: "∼", lossy: "!", partial: "…" };
  const MESSAGE_ICONS = { stopped: "■", error: "!" };
  /** What stands in a figure's or a reason's place until there is one, by phase. */
  const HERO_WAITS = {
    idle: "Press Run to race plain against speculative decoding of the same prompt", running: "Measuring…",
  };
  const WHY_WAITS = {
    idle: "When a run ends, its measurements say here why speculation was faster, or why it was not.",
    loading: "Follows when the run ends.", running: "Follows when the run ends.",
    stopped: "The run ended too early to say.", error: "Nothing was measured.",
    done: "Too few rounds, or too few lanes, to say why.",
  };
  const NOTHING = "–";
  const OVER = new Set(["done", "stopped", "error"]);
  /** Before this much decoding the speed-up is noise. */
  const SETTLED = { tokens: 5, seconds: 0.15 };

  /** The view of each root, so that mounting twice is harmless. */
  const mounted = new WeakMap();

  const { make } = window.SpecDemoTokens;

  // ---- elements ------------------------------------------------------------------------------------------------

  /** Writes only what changed, so that an unchanged value touches nothing. */
  function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function setData(element, key, value) {
    if (value === null || value === undefined || value === false) {
      if (key in element.dataset) delete element.dataset[key];
    } else if (element.dataset[key] !== String(value)) {
      element.dataset[key] = value;
    }
  }

  /** Text with its first part in bold: what counts first, how it was found after it. */
  function setLead(element, text, leading) {
    if (element.textContent === text) return;
    const lead = (leading.exec(text) || [""])[0];
    element.replaceChildren(make("strong", "", null, lead), text.slice(lead.length));
  }

  // ---- figures -------------------------------------------------------------------------------------------------

  const emptyTally = () => ({
    clock: 0, prefill: 0, passes: 0, kept: 0, emitted: 0, decodeRounds: 0, drafted: 0, accepted: 0, stop: null,
    unknown: false, pieces: false,
  });

  /** Counts one more round; round 0 is the prefill, which is no part of the decoding speed. */
  function count(tally, round) {
    const kept = round.tokens.filter((token) => token.kind !== "rejected").length;
    tally.passes += 1;
    tally.kept += kept;
    tally.clock = round.seconds;
    tally.stop = round.stop || tally.stop;
    // What a server streams are chunks, not rounds; and pieces of text, not tokens, if it gives no ids.
    tally.unknown = tally.unknown || round.tokens.some((token) => token.kind === "streamed");
    tally.pieces = tally.pieces || round.tokens.some((token) => token.kind !== "rejected" && token.id === undefined);
    if (round.index === 0) {
      tally.prefill = round.seconds;
    } else {
      tally.decodeRounds += 1;
      tally.emitted += kept;
      tally.drafted += round.drafted;
      tally.accepted += round.accepted;
    }
  }

  /** Decoded tokens per second, or null while there is nothing to measure. */
  function speed(tally) {
    if (tally.told) return tally.told.tokens_per_second;
    if (tally.pieces) return null;
    const seconds = tally.clock - tally.prefill;
    return tally.emitted && seconds > 0 ? tally.emitted / seconds : null;
  }

  function settled(tally, over) {
    if (speed(tally) === null) return false;
    return over || tally.told || (tally.emitted >= SETTLED.tokens && tally.clock - tally.prefill >= SETTLED.seconds);
  }

  const formatSpeed = (rate) => (rate === null ? NOTHING : rate.toFixed(rate < 99.95 ? 1 : 0));
  const formatRatio = (ratio) => ratio.toFixed(ratio < 0.995 ? 2 : ratio < 9.95 ? 1 : 0) + "×";
  const formatShare = (part, whole) => (whole ? Math.round((100 * part) / whole) + " %" : NOTHING);

  /** What is counted of a lane; what only its server knows is null, and in its own words once it has ended. */
  function counted(tally) {
    if (tally.told) return tally.told;
    const decoded = tally.decodeRounds > 0 && !tally.unknown;
    return {
      seconds: tally.passes ? tally.clock : null,
      tokens: tally.passes && !tally.pieces ? tally.kept : null,
      passes: tally.passes && !tally.unknown ? tally.passes : null,
      tau: decoded ? tally.emitted / tally.decodeRounds : null,
      acceptance_rate: tally.drafted && !tally.unknown ? tally.accepted / tally.drafted : null,
    };
  }

  function laneFigures(tally, spec, first) {
    const rates = [speed(tally), speed(first)];
    const { seconds, tokens, passes, tau, acceptance_rate } = counted(tally);
    const written = (value, write) => (typeof value === "number" ? write(value) : NOTHING);
    return {
      tokens_per_second: formatSpeed(speed(tally)),
      seconds: written(seconds, (s) => s.toFixed(2) + " s"),
      tokens: written(tokens, String),
      passes: written(passes, String),
      tau: written(tau, (t) => t.toFixed(2)),
      acceptance_rate: written(spec.gamma > 0 ? acceptance_rate : null, (share) => formatShare(share, 1)),
      gamma: tally.decodeRounds ? (tally.drafted / tally.decodeRounds).toFixed(1) : NOTHING,
      ratio: rates.includes(null) ? NOTHING : formatRatio(rates[0] / rates[1]),
    };
  }

  /** What the hero says of these lanes: the fastest other one against the first. */
  function compare(lanes, over) {
    if (!lanes.length || !lanes.every((lane) => settled(lane.tally, over))) return null;
    if (lanes.some((lane) => lane.spec.broken)) return { figure: "", text: "no speed-up: an answer broke off", trend: "even" };
    const [plain, ...others] = lanes;
    if (!others.length) return { figure: formatSpeed(speed(plain.tally)), text: "tokens per second", trend: "even" };
    const fastest = others.reduce((a, b) => (speed(b.tally) > speed(a.tally) ? b : a));
    const ratio = speed(fastest.tally) / speed(plain.tally);
    const trend = ratio > 1.03 ? "faster" : ratio < 0.97 ? "slower" : "even";
    const text = compareText(plain.spec, fastest.spec, trend);
    return { figure: formatRatio(ratio), text: others.length > 1 ? `${text}, the fastest of ${others.length} others` : text, trend };
  }

  function compareText(first, second, trend) {
    const than = trend === "even" ? "about as fast as" : trend + " than";
    if (first.weights !== second.weights) { // a speed-up of two causes must not be put down to one of them
      return `${second.title} with ${second.weights} is ${than} ${first.title} with ${first.weights}`;
    }
    if (first.title === "Plain" && second.title === "Speculative") {
      return trend === "even" ? "about as fast" : trend + " with speculation";
    }
    return `${second.title} is ${than} ${first.title}`;
  }

  // ---- a lane --------------------------------------------------------------------------------------------------

  /** Which figures a lane has. */
  function hasStat(key, spec) {
    if (key === "acceptance_rate") return spec.gamma > 0;
    return key !== "gamma" || Boolean(spec.adaptive);
  }

  /** A lane's card. @param {LaneSpec} spec  @param {number} series which line of the chart it is, 0 if plain */
  function createLane(spec, number, lanes, series, tip) {
    const card = make("section", "race-lane", null, null, { "data-lane": number, "data-series": series });
    const header = make("header", "", card);
    const name = make("div", "race-name", header);
    const lane = {
      card, spec, tally: emptyTally(), stats: {},
      title: make("h3", "", name), detail: make("span", "race-detail", name), lossy: make("span", "race-tag", name, "lossy"),
    };
    const rate = make("div", "race-rate", header);
    // With two lanes the hero says it; with more, every lane says how it does against the first.
    if (lanes > 2 && number > 0) lane.stats.ratio = make("span", "race-ratio", rate, NOTHING, { "data-stat": "ratio", title: RATIO_FORMULA });
    lane.stats.tokens_per_second = make("b", "", rate, NOTHING, { "data-stat": "tokens_per_second", title: RATE_FORMULA });
    make("span", "", rate, "tok/s");
    const meta = make("dl", "race-meta", card);
    for (const [key, label, formula] of STATS) {
      if (!hasStat(key, spec)) continue;
      const stat = make("div", "", meta, null, { title: formula });
      make("dt", "", stat, label);
      lane.stats[key] = make("dd", "", stat, NOTHING, { "data-stat": key });
    }
    if (spec.server) lane.server = make("div", "race-served", card, null, { "data-role": "served" });
    lane.text = window.SpecDemoTokens.createArea(card, spec.hint || "", tip);
    nameLane(lane, spec);
    return lane;
  }

  function nameLane(lane, spec) {
    lane.spec = spec;
    setText(lane.title, spec.title);
    setText(lane.detail, spec.detail || "");
    if (lane.lossy.hidden === Boolean(spec.lossy)) lane.lossy.hidden = !spec.lossy;
    const label = `${spec.title}: tokens. Left and right arrows go from token to token, up and down from round to round.`;
    if (lane.text.area.getAttribute("aria-label") !== label) lane.text.area.setAttribute("aria-label", label);
    if (spec.prompt && !lane.text.places.length) lane.text.showPrompt(spec.prompt);
    if (spec.server) tellServer(lane.server, spec.server);
  }

  /** Whose clock a server's lane has and what the server told; under it what did not add up, or broke off. */
  function tellServer(host, { line, notes }) {
    const texts = [line, ...notes];
    if (texts.join("\n") === host.dataset.said) return;
    host.dataset.said = texts.join("\n");
    const said = make("p", "race-clock");
    for (const part of line.split(" · ")) make("span", "", said, part);
    host.replaceChildren(said, ...notes.map((note) => make("p", "race-note", null, note)));
  }

  /** Shows the figures and whether the lane still runs. */
  function refreshLane(lane, first, running) {
    const figures = laneFigures(lane.tally, lane.spec, first.tally);
    for (const key in lane.stats) setText(lane.stats[key], figures[key]);
    setData(lane.card, "running", running && !lane.tally.stop && "yes");
    setData(lane.text.area, "end", ENDS[lane.tally.stop] || null);
  }

  // ---- the page ------------------------------------------------------------------------------------------------

  function buildHero(frame) {
    const hero = make("div", "race-hero", frame);
    const speedup = make("div", "race-speedup", hero, null, { "data-role": "speedup", title: HERO_FORMULA });
    const claim = make("div", "race-claim", hero);
    const comparison = make("p", "race-comparison", claim, null, { "data-role": "comparison" });
    const verdict = buildNotice(claim, "verdict");
    const message = buildNotice(claim, "message");
    return { speedup, comparison, verdict, message };
  }

  /** A line with an icon; hidden while it has nothing to say. */
  function buildNotice(parent, role) {
    const line = make("p", "race-" + role, parent, null, { "data-role": role, role: "status" });
    return { line, icon: make("span", "race-icon", line, null, { "aria-hidden": "true" }), text: make("span", "", line) };
  }

  function showNotice(notice, kind, icon, text) {
    if (notice.line.hidden === Boolean(text)) notice.line.hidden = !text;
    setData(notice.line, "kind", text ? kind : null);
    setData(notice.icon, "icon", icon || "");
    setLead(notice.text, text || "", /^[^,.:;]+/);
  }

  function buildBelow(frame) {
    const below = make("div", "race-below", frame);
    const chart = make("section", "race-card", below);
    const head = make("div", "race-card-head", chart);
    make("h3", "", head, "Tokens per second, on each lane’s own clock");
    const keys = make("div", "race-lines", head);
    head.append(window.SpecDemoPng.button());
    const plot = make("div", "race-chart", chart, null, { "data-role": "chart" });
    const reason = make("section", "race-card", below);
    make("h3", "", reason, "Why");
    return { keys, plot, why: make("p", "race-why", reason, null, { "data-role": "why" }) };
  }

  /** What is there only after a run: where the time went, and all figures. */
  function buildAfter(frame) {
    const after = make("div", "race-after", frame);
    const card = make("section", "race-card", after);
    const head = make("div", "race-card-head", card);
    const title = make("h3", "", head);
    const keys = make("div", "race-lines", head);
    for (const name of window.SpecDemoTimeline ? window.SpecDemoTimeline.phases : []) {
      make("span", "phase-" + name.split(" ")[0], keys, name).prepend(make("i", "", null));
    }
    head.append(window.SpecDemoPng.button());
    const plot = make("div", "race-timeline", card, null, { "data-role": "timeline" });
    const figures = make("details", "race-card race-figures", after);
    make("summary", "", figures, "All figures, and how they are computed");
    return { frame: after, card, title, plot, figures, table: make("table", "", figures, null, { "data-role": "figures" }) };
  }

  class View {
    constructor(root) {
      this.root = root;
      this.frame = make("div", "specdemo-race");
      this.hero = buildHero(this.frame);
      this.laneRow = make("div", "race-lanes", this.frame);
      this.toggle = window.SpecDemoTokens.buildLegend(this.frame);
      this.below = buildBelow(this.frame);
      this.after = buildAfter(this.frame);
      this.timeline = window.SpecDemoTimeline ? window.SpecDemoTimeline.create(this.after.plot) : null;
      this.tip = window.SpecDemoTokens.createTip(this.frame);
      this.chart = window.SpecDemoChart ? window.SpecDemoChart.create(this.below.plot) : null;
      this.onOutside = (event) => !event.target.closest('[data-role="tokens"]') && this.tip.hide();
      this.onResize = () => this.tip.hide();
      document.addEventListener("pointerdown", this.onOutside);
      window.addEventListener("resize", this.onResize);
      this.frame.addEventListener("copy", window.SpecDemoTokens.onCopy);
      this.toggle.addEventListener("change", () => this.showRejected(this.toggle.checked));
      this.run = undefined;
      this.update(null);
    }

    /** Shows `value`; of its rounds only those that are new are added. */
    update(value) {
      if (this.frame.parentNode !== this.root) this.root.replaceChildren(this.frame);
      const rounds = (value && value.rounds) || [];
      const specs = value && value.lanes && value.lanes.length ? value.lanes : IDLE_LANES;
      const run = value ? String(value.run) : null;
      if (run !== this.run || rounds.length < this.seen || specs.length !== this.lanes.length) this.begin(run, specs);
      this.lanes.forEach((lane, i) => nameLane(lane, specs[i]));
      this.append(rounds);
      const phase = value ? value.phase : "idle";
      setData(this.frame, "phase", phase);
      this.tell(specs, phase);
      this.lanes.forEach((lane) => refreshLane(lane, this.lanes[0], phase === "running"));
      this.showHero(value, phase);
      this.showWhy(value && value.why, phase);
      this.showFigures(value, specs);
      this.lanes.forEach((lane) => lane.text.scroll()); // after all writing, so that layout happens once
      this.finish(phase);
    }

    /** Figures that servers told count from the end on; and whether tokens of an unknown kind need a word. */
    tell(specs, phase) {
      this.lanes.forEach((lane, i) => { lane.tally.told = OVER.has(phase) ? specs[i].told || null : null; });
      const hidden = !this.lanes.some((lane) => lane.tally.unknown);
      const entry = this.frame.querySelector('[data-kind="streamed"]');
      if (entry.hidden !== hidden) entry.hidden = hidden;
    }

    /** Clears the page for a new run. */
    begin(run, specs) {
      this.tip.hide();
      this.run = run;
      this.seen = 0;
      this.over = false;
      let series = 0;
      this.lanes = specs.map((spec, i) => createLane(spec, i, specs.length, spec.gamma > 0 ? ++series : 0, this.tip));
      this.laneRow.replaceChildren(...this.lanes.map((lane) => lane.card));
      setData(this.laneRow, "lanes", specs.length);
      this.below.keys.replaceChildren(...this.lanes.map((lane) => {
        const key = make("span", "", null, lane.spec.title, { "data-series": lane.card.dataset.series });
        key.prepend(make("i", "", null));
        return key;
      }));
      if (this.chart) this.chart.begin(run === null ? [] : specs);
      if (this.timeline) this.timeline.begin(specs);
      this.after.frame.hidden = true;
    }

    /**
     * Adds the rounds that are new. An item may also be the JSON of a list of rounds: Gradio copies and walks the
     * whole value at every update, which takes seconds for thousands of nested tokens and nothing for strings.
     */
    append(items) {
      for (; this.seen < items.length; this.seen++) {
        const item = items[this.seen];
        for (const round of typeof item === "string" ? JSON.parse(item) : [item]) this.addRound(round);
      }
      this.lanes.forEach((lane) => lane.text.flush());
    }

    addRound(round) {
      const lane = this.lanes[round.lane];
      if (!lane) return;
      count(lane.tally, round);
      const streamed = round.tokens.some((token) => token.kind === "streamed"); // a chunk is no round
      lane.text.add(round, lane.spec.gamma > 0 && round.index > 0 && !streamed);
      if (this.chart && !lane.tally.pieces) this.chart.add(round.lane, lane.tally.clock, lane.tally.emitted, Boolean(round.stop));
      if (this.timeline) this.timeline.add(round.lane, round);
    }

    showHero(value, phase) {
      const { speedup, comparison, verdict, message } = this.hero;
      const result = value ? compare(this.lanes, phase === "done") : null;
      setText(speedup, result ? result.figure : "");
      setData(speedup, "trend", result && result.trend);
      setText(comparison, result ? result.text : HERO_WAITS[phase] || "");
      const judged = value && value.verdict;
      showNotice(verdict, judged && judged.kind, judged && VERDICT_ICONS[judged.kind], judged && judged.text);
      showNotice(message, phase, MESSAGE_ICONS[phase], value && value.message);
    }

    showWhy(why, phase) {
      setData(this.below.why, "empty", !why && "yes");
      setLead(this.below.why, why || WHY_WAITS[phase] || "", /^[\d.,]+ ?×/);
    }

    showFigures(value, specs) {
      const rows = (value && value.figures) || [];
      const { figures, table } = this.after;
      if (figures.hidden === Boolean(rows.length)) figures.hidden = !rows.length;
      if (rows.length && !this.over) window.SpecDemoTokens.fillFigures(table, specs.map((spec) => spec.title), rows);
    }

    /** Once, when a run is over in whatever way. */
    finish(phase) {
      const over = OVER.has(phase);
      if (over && !this.over && this.chart) this.chart.finish();
      if (over && !this.over && this.timeline) {
        this.after.frame.hidden = false; // first, since Plotly measures its host
        this.after.card.hidden = !this.timeline.draw();
        setText(this.after.title, "Where the time went" + (this.timeline.cut ? ", the first rounds" : ""));
        this.after.frame.hidden = this.after.card.hidden && this.after.figures.hidden;
      }
      this.over = over;
    }

    showRejected(shown) {
      this.tip.hide();
      this.frame.classList.toggle("hide-rejected", !shown);
    }

    destroy() {
      document.removeEventListener("pointerdown", this.onOutside);
      window.removeEventListener("resize", this.onResize);
      if (this.chart) this.chart.destroy();
      if (this.timeline) this.timeline.destroy();
      this.frame.remove();
      mounted.delete(this.root);
    }
  }

  /** The view in `root`, made at the first call. */
  function mount(root) {
    if (!mounted.has(root)) mounted.set(root, new View(root));
    return mounted.get(root);
  }

  window.SpecDemoRace = { mount };
})();
