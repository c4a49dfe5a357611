/*
 * What stands above the lanes of a race: the speed-up, how sure it is, the verdict on the outputs, and *Repeat ×5*.
 * While lanes run, the speed-up is computed here from what they have emitted; when they have ended, the value's headline
 * says it.
 *
 * @typedef {{baseline: number, bounded: boolean, lane: string, faster: string, slower: string, even: string}} Claims  of a lane: which
 *   other it is compared with, its name, and what is said of its speed
 * @typedef {{lane: string, figure: string, trend: string, text: string, detail: string, doubt: ?string}} Headline
 */

const HERO_FORMULA = "tokens/s of the lane named / tokens/s of what it is compared with, both measured in this run";
const REPEAT_HINT = "Runs the same lanes five times more without showing their tokens, for the median and the range";
const MESSAGE_ICONS = { stopped: "■", error: "!" };
/** What the place of the speed-up says in each phase while there is none. */
const WAITS = {
  idle: "Press Run to race plain against speculative decoding of the same prompt", running: "Measuring…",
};
const { OVER, Notice, button, make, setText, setData } = window.SpecDemoDom;
const { level, settled } = window.SpecDemoShared;

const formatSpeed = (rate) => rate.toFixed(rate < 99.95 ? 1 : 0);
const formatRatio = (ratio) => ratio.toFixed(ratio < 0.995 ? 2 : ratio < 9.95 ? 1 : 0) + "×";

/** A lane's speed over another's; over a plain one's that is alike at most what its rounds allow. */
function speedRatio(lane, base) {
  const ratio = lane.tally.speed && base.tally.speed && lane.tally.speed / base.tally.speed;
  const bounded = ratio && lane.spec.claims?.bounded && lane.spec.weights === base.spec.weights;
  const tau = bounded && lane.tally.figures.tau; // tokens and passes
  return tau ? Math.min(ratio, tau[0] / tau[1]) : ratio;
}

/** The speed-up of lanes that still run: the fastest of those compared, unless little has been decoded so far. */
function live(lanes) {
  const { tokens, rounds, seconds } = settled;
  const known = ({ tally }) => tally.speed !== null && tally.emitted >= tokens && tally.rounds > rounds && tally.seconds >= seconds;
  if (!lanes.length || !lanes.every(known)) return null;
  const compared = lanes.filter(({ spec }) => spec.claims);
  if (!compared.length) return { figure: formatSpeed(lanes[0].tally.speed), text: "tokens per second", trend: "even" };
  const fastest = compared.reduce((a, b) => (b.tally.speed > a.tally.speed ? b : a));
  const { spec } = fastest, ratio = speedRatio(fastest, lanes[spec.claims.baseline]);
  const trend = ratio > 1 + level ? "faster" : ratio < 1 / (1 + level) ? "slower" : "even";
  const figure = { faster: formatRatio(ratio), slower: Math.round(100 * (1 - ratio)) + "%", even: "" }[trend];
  return { lane: figure && spec.claims.lane, figure, text: spec.claims[trend], trend };
}

class Hero {
  constructor(frame) {
    const hero = make("div", "race-hero", frame);
    const figure = make("div", "race-figure", hero);
    this.lane = make("div", "race-whose", figure, null, { "data-role": "whose" });
    this.speedup = make("div", "race-speedup", figure, null, { "data-role": "speedup", title: HERO_FORMULA });
    const claim = make("div", "race-claim", hero);
    const line = make("p", "race-comparison", claim);
    this.comparison = make("span", "", line, null, { "data-role": "comparison" });
    this.detail = make("span", "race-range", line, null, { "data-role": "range" });
    this.doubt = new Notice(claim, "doubt", "race-doubt");
    this.verdict = new Notice(claim, "verdict", "race-verdict");
    this.message = new Notice(claim, "message", "race-message");
    const row = make("p", "race-again", hero);
    const repeat = () => document.querySelector("#race-repeat")?.click();
    this.again = button(row, "race-control wide", "Repeat ×5", repeat, { "data-role": "repeat", title: REPEAT_HINT });
    this.repeating = make("span", "", row, null, { "data-role": "repeating", role: "status" });
  }

  /** @param {?Object} value of the race view  @param {Object[]} lanes of the view, with what they counted */
  show(value, phase, lanes) {
    const over = OVER.has(phase);
    const result = over ? value?.headline : value && !value.columns && live(lanes);
    setText(this.lane, result?.lane ? `${result.lane}:` : "");
    setText(this.speedup, result?.figure || "");
    setData(this.speedup, "trend", result?.trend);
    setData(this.speedup, "doubt", result?.doubt && "yes");
    setText(this.comparison, result?.text || (value?.seenAgain ? "" : WAITS[phase]) || ""); // what is played measures nothing
    setText(this.detail, result?.detail ? `(${result.detail})` : "");
    this.doubt.show("doubt", "!", result?.doubt);
    this.verdict.showVerdict(value?.verdict);
    this.message.show(phase, MESSAGE_ICONS[phase], value?.message);
    // The button under a run of this page that came to its end, or how far its repetition is.
    const possible = phase === "done" && result?.trend && !value.replay && !value.columns && document.querySelector("#race-repeat");
    this.again.parentNode.hidden = !possible || lanes.length < 2;
    this.again.hidden = value?.repeating?.over === false;
    setText(this.repeating, value?.repeating?.message || "");
  }
}

window.SpecDemoHeadline = { Hero, formatSpeed, formatRatio, speedRatio };
