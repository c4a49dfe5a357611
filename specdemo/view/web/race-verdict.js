/*
 * What stands above the lanes of a race: the speed-up, how sure it is, the verdict on the outputs, and *Repeat ×5*.
 *
 * A plain script that defines `window.SpecDemoVerdict`; it is loaded before race.js. While lanes run, the speed-up is
 * reckoned here from what they have emitted; when they have ended, the value's headline says it.
 *
 * @typedef {{run: string, figure: string, trend: string, text: string, detail: string, doubt: ?string}} Headline
 * @typedef {{run: ?string, phase: string, message: string, headline: ?Headline}} Repeated
 */
(function () {
  "use strict";

  const HERO_FORMULA = "tokens/s of the lane named / tokens/s of what it is compared with, both measured in this run";
  const REPEAT_HINT = "Runs the same lanes five times more without showing their tokens, for the median and the range";
  const MESSAGE_ICONS = { stopped: "■", error: "!" };
  /** What the place of the speed-up says in each phase while there is none. */
  const WAITS = {
    idle: "Press Run to race plain against speculative decoding of the same prompt", running: "Measuring…",
  };
  /** With less decoding than this the speed-up is noise. */
  const SETTLED = { tokens: 16, seconds: 0.15 };
  /** Speeds that differ by no more are said to be the same, as in specdemo/analysis/wording.py. */
  const LEVEL = 0.05;

  const { OVER, Notice, make, setText, setData, setHidden } = window.SpecDemoDom;

  const formatSpeed = (rate) => rate.toFixed(rate < 99.95 ? 1 : 0);
  const formatRatio = (ratio) => ratio.toFixed(ratio < 0.995 ? 2 : ratio < 9.95 ? 1 : 0) + "×";

  /** The repetitions of runs, by the name of the run. A run that is played again has the same. */
  const repetitions = new Map();
  const heroes = new Set();

  function trendOf(ratio) {
    return ratio > 1 + LEVEL ? "faster" : ratio < 1 / (1 + LEVEL) ? "slower" : "even";
  }

  /** The speed-up of lanes that still run: the fastest lane that drafts, against the plain one of its weights. */
  function live(lanes) {
    if (!lanes.every(({ tally }) => {
      const seconds = tally.clock - tally.prefill;
      return tally.speed !== null && tally.emitted >= SETTLED.tokens && seconds >= SETTLED.seconds;
    })) return null;
    const speed = (lane) => lane.tally.speed;
    const drafts = (lane) => lane.spec.gamma > 0 || Boolean(lane.spec.server);
    const plain = (lane) => lanes.find((other) => other !== lane && other.spec.gamma === 0 && other.spec.weights === lane.spec.weights);
    const drafting = lanes.filter((lane, i) => drafts(lane) && (i > 0 || plain(lane)));
    const others = drafting.length ? drafting : lanes.slice(1);
    if (!others.length) return { figure: formatSpeed(speed(lanes[0])), text: "tokens per second", trend: "even" };
    const fastest = others.reduce((a, b) => (speed(b) > speed(a) ? b : a));
    const first = plain(fastest) || lanes[0];
    const ratio = speed(fastest) / speed(first);
    const trend = trendOf(ratio);
    const figure = { faster: formatRatio(ratio), slower: Math.round(100 * (1 - ratio)) + "%", even: "" }[trend];
    return { figure, text: compareText(first.spec, fastest.spec, trend), trend };
  }

  function compareText(first, second, trend) {
    const claim = (a, b) => trend === "even" ? `${b} is as fast as ${a}` : `${trend} than ${a}: ${b}`;
    if (first.weights !== second.weights) { // the speed-up then has two causes, and the text must name both
      return claim(`${first.title} with ${first.weights}`, `${second.title} with ${second.weights}`);
    }
    if (first.title === "Plain" && second.title === "Speculative") {
      return trend === "even" ? "As fast as plain" : trend + " with speculation";
    }
    return claim(first.title, second.title);
  }

  class Hero {
    constructor(frame) {
      const hero = make("div", "race-hero", frame);
      this.speedup = make("div", "race-speedup", hero, null, { "data-role": "speedup", title: HERO_FORMULA });
      const claim = make("div", "race-claim", hero);
      const line = make("p", "race-comparison", claim);
      this.comparison = make("span", "", line, null, { "data-role": "comparison" });
      this.detail = make("span", "race-range", line, null, { "data-role": "range" });
      this.doubt = new Notice(claim, "doubt", "race-doubt");
      this.verdict = new Notice(claim, "verdict", "race-verdict");
      this.message = new Notice(claim, "message", "race-message");
      const row = make("p", "race-again", hero);
      this.again = make("button", "race-repeat", row, "Repeat ×5", { type: "button", "data-role": "repeat", title: REPEAT_HINT });
      this.again.addEventListener("click", () => document.querySelector("#race-repeat")?.click());
      this.repeating = make("span", "", row, null, { "data-role": "repeating", role: "status" });
      heroes.add(this);
    }

    /** @param {?Object} value of the race view  @param {Object[]} lanes of the view, with what they counted */
    show(value, phase, lanes) {
      [this.value, this.phase, this.lanes] = [value, phase, lanes];
      const over = OVER.has(phase);
      const said = over ? value?.headline : null;
      const repeated = said ? repetitions.get(said.run) : null;
      const result = repeated?.headline || said || (value && !over ? live(lanes) : null);
      setText(this.speedup, result?.figure || "");
      setData(this.speedup, "trend", result?.trend);
      setData(this.speedup, "doubt", result?.doubt && "yes");
      setText(this.comparison, result?.text || (value?.seenAgain ? "" : WAITS[phase]) || ""); // what is played measures nothing
      setText(this.detail, result?.detail ? `(${result.detail})` : "");
      this.doubt.show("doubt", "!", result?.doubt);
      this.verdict.showVerdict(value?.verdict);
      this.message.show(phase, MESSAGE_ICONS[phase], value?.message);
      this.showRepetition(said, phase, repeated);
    }

    /** The button under a run of this page that came to its end, or how far its repetition is. */
    showRepetition(said, phase, repeated) {
      const possible = phase === "done" && said?.trend && !this.value.replay && document.querySelector("#race-repeat");
      const under = repeated && !OVER.has(repeated.phase);
      setHidden(this.again.parentNode, !possible || this.lanes.length < 2);
      setHidden(this.again, Boolean(under));
      setText(this.repeating, repeated?.message || "");
    }
  }

  /** Takes how far a repetition is; one whose run is not yet known is of the run that is shown. @param {Repeated} state */
  function repeated(state) {
    for (const hero of heroes) {
      const run = state.run || hero.value?.headline?.run;
      if (!run) continue;
      const before = repetitions.get(run);
      repetitions.set(run, { ...state, headline: state.headline || before?.headline });
      if (hero.value) hero.show(hero.value, hero.phase, hero.lanes);
    }
  }

  window.SpecDemoVerdict = { Hero, repeated, formatSpeed, formatRatio };
})();
