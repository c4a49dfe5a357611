/*
 * The player of the race view: it hands the view the rounds that the lanes had finished at a moment of their clocks.
 *
 * A value without `replay` is a run that happens now, which the view follows. When a person pauses it the player holds
 * it: its rounds are played like a recording that still grows, until they have caught up with the run. A run that has
 * ended is held too, to be seen again.
 *
 * @typedef {{run: string, replaces: ?string, phase: string, rounds: Round[], replay: ?Replay}} Value  what else it
 *   has is shown by race.js
 * @typedef {{title: string, label: string, date: string, prompt: ?string, facts: [string, string][]}} Replay
 */

/** Seconds that may pass between two frames; with more, the page was hidden, and the clock must stand still. */
const LONGEST_FRAME = 0.25;
const PAUSED = "Paused; decoding goes on behind it";
const STILL = matchMedia("(prefers-reduced-motion: reduce)");

/** What the button calls what it will do next, by the state of what is played. */
const PLAY = { playing: "Pause", paused: "Play", over: "Play again" };
const { ARROWS, OVER, button, make, modified, mounting, setText } = window.SpecDemoDom;

/** By lane clock; the order within each lane stays. */
const byClock = (rounds) => rounds.sort((a, b) => a.seconds - b.seconds);

const latest = (rounds) => rounds.reduce((most, round) => Math.max(most, round.seconds), 0);

const within = (value, most) => Math.min(Math.max(0, value), most);

/** A button with a sign, of race-player.css, and a name for those who do not see it. */
function signed(parent, action, label, title, act) {
  const made = button(parent, "race-control", null, act, { "data-action": action, title });
  make("i", "race-glyph", made, null, { "aria-hidden": "true" });
  make("span", "race-spoken", made, label);
  return made;
}

const worded = (parent, action, label, title, act) => button(parent, "race-control wide", label, act, {
  "data-action": action, title,
});

/** The bar of the player: play, steps, seek and speed, below what is played. */
class Controls {
  /** @param {Player} player that does what is pressed */
  constructor(player) {
    this.bar = make("section", "race-player", null, null, { "data-role": "player", "aria-label": "Replay" });
    this.about = make("div", "race-about", this.bar);
    this.label = make("span", "race-recorded", this.about, null, { "data-role": "recorded" });
    this.title = make("strong", "", this.about);
    this.prompt = make("q", "race-asked", this.about, null, { "data-role": "prompt-text" });
    const controls = make("div", "race-controls", this.bar);
    this.play = signed(controls, "play", "Play", "Play or pause (space)", () => player.toggle());
    this.back = signed(controls, "back", "One round back", "One round back (left arrow)", () => player.step(-1));
    this.forward = signed(controls, "forward", "One round forward", "One round forward (right arrow)", () => player.step(1));
    this.seek = make("input", "race-seek", controls, null, {
      type: "range", min: 0, max: 1, step: "any", value: 0, "aria-label": "Lane time", "data-role": "seek",
    });
    this.seek.addEventListener("input", () => player.seek(Number(this.seek.value)));
    this.time = make("span", "race-time", controls, null, { "data-role": "time" });
    this.speed = make("select", "race-speed-choice", controls, null, {
      "aria-label": "Speed of the replay", title: "Speed; 1× is real time", "data-role": "speed",
    });
    for (const times of window.SpecDemoShared.speeds) make("option", "", this.speed, times + "×", { value: times });
    this.speed.addEventListener("change", () => player.setSpeed(this.speed.value));
    worded(controls, "slow", "Watch at 0.25×", "Play from the beginning at a quarter of the speed", () => player.playSlowly());
    worded(controls, "apart", "Take a round apart", "Show draft, check and outcome of a round: how a guess was dropped, or what was played last", () => player.takeApart());
    this.facts = make("details", "race-card race-facts", null, null, { "data-role": "facts" });
  }

  describe(replay) {
    const { about, label, title, prompt } = this;
    label.textContent = [replay.label, replay.date].filter(Boolean).join(", ");
    about.hidden = !label.textContent; // a run that has just ended needs no words
    title.textContent = replay.title || "";
    title.hidden = !replay.title;
    prompt.textContent = prompt.title = replay.prompt || "";
    prompt.hidden = !replay.prompt;
    const list = make("dl");
    for (const [name, text] of replay.facts || []) {
      make("dt", "", list, name);
      make("dd", "", list, text);
    }
    this.facts.replaceChildren(make("summary", "", null, "Settings, machine and versions"), list);
  }

  /** Names the button; a change is told as the event `race-play`. @param {string} state one of PLAY */
  showPlay(state) {
    if (this.play.dataset.state === state) return;
    this.play.dataset.state = state;
    setText(this.play.lastChild, PLAY[state]);
    this.play.dispatchEvent(new CustomEvent("race-play", { bubbles: true, detail: PLAY[state] }));
  }

  /** @param {number} clock  @param {number} length in lane seconds */
  showTime(clock, length) {
    this.seek.max = length || 1;
    this.seek.value = clock;
    setText(this.time, `${clock.toFixed(2)} of ${length.toFixed(2)} s`);
    this.seek.setAttribute("aria-valuetext", this.time.textContent);
  }
}

class Player {
  constructor(root) {
    this.view = window.SpecDemoRace.mount(root);
    this.parts = new Controls(this);
    this.apart = new window.SpecDemoApart.Apart(this.view.tree);
    this.view.tree.card.after(this.parts.bar, this.apart.card);
    this.view.frame.append(this.parts.facts);
    this.value = null;
    /** Whether the player decides what is shown: of a recording, or of a run that is paused or over. */
    this.held = false;
    /** All that are known, in the order in which they are shown, and how many of them are. */
    this.rounds = [];
    this.shown = 0;
    this.frame = 0;
    /** How the next recording begins, where a link says so: its speed, and whether it waits for Play. */
    this.opening = null;
    this.showBar();
    document.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** Shows a run as it is, or begins to play a recording. @param {?Value} value */
  update(value) {
    const before = this.value?.run;
    const known = Boolean(value) && value.run === before;
    const held = this.held && value && !value.replay && [value.run, value.replaces].includes(before);
    if (!known) this.rounds = [];
    this.value = value;
    // A lane whose clock is behind may still send rounds of a moment that is already shown. They come next, so that
    // a step back never shows more than before.
    this.rounds.push(...byClock((value?.rounds || []).slice(this.rounds.length)));
    this.length = latest(this.rounds);
    if (value?.replay && !value.message) known ? this.render() : this.open();
    else if (held && !["stopped", "error"].includes(value.phase)) this.grow(known);
    else this.follow();
  }

  open() {
    this.leave();
    this.hold();
    if (this.view.frame.getBoundingClientRect().top < 0) this.view.frame.scrollIntoView();
    this.moveTo(0);
    const { speed = "1", waits = false } = this.opening || {};
    this.opening = null;
    this.setSpeed(speed);
    if (waits) return;
    if (STILL.matches) this.moveTo(this.length);
    else this.play();
  }

  /** Shows a run as it happens, and stands under one that has ended. */
  follow() {
    this.leave();
    this.view.update(this.value && { ...this.value, rounds: this.rounds });
    if (OVER.has(this.value?.phase) && this.hold()) this.apart.greet(this.rounds);
  }

  /** Takes over what is shown, which does not change; false if there is nothing to hold. */
  hold() {
    if (this.held || !this.rounds.length) return false;
    this.held = true;
    byClock(this.rounds);
    this.shown = this.rounds.length;
    this.clock = this.length;
    this.showBar();
    return true;
  }

  /** Has more rounds of the held run, or a new headline: a person can step to them, but nothing moves by itself. */
  grow(known) {
    this.showBar();
    if (known) {
      this.render();
      return;
    }
    this.shown = null; // its rounds were sent anew, now that the server has reported them
    this.moveTo(this.clock);
  }

  leave() {
    this.held = false;
    this.pause();
    this.setSpeed("1");
    this.showBar();
    this.apart.close();
  }

  /** Plays, or pauses what plays or happens now. */
  toggle() {
    if (this.playing) this.pause();
    else if (this.held) this.play();
    else if (this.hold() && !this.growing) this.play(); // a run that is over is played again
  }

  /** One round forward or back, whether a recording or a run is shown. */
  stepAny(by) {
    this.hold();
    this.step(by);
  }

  /** Whether more rounds of what is held may come. */
  get growing() {
    return this.held && !OVER.has(this.value.phase);
  }

  get playing() {
    return this.frame !== 0;
  }

  play() {
    if (!this.held || this.playing) return;
    if (this.shown === this.rounds.length) {
      if (this.growing) {
        this.follow();
        return;
      }
      this.moveTo(0);
    }
    this.last = performance.now();
    this.frame = requestAnimationFrame((now) => this.tick(now));
    this.showState();
  }

  setSpeed(times) {
    this.parts.speed.value = times;
    this.speed = Number(times);
  }

  pause() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.showState();
  }

  tick(now) {
    const passed = within((now - this.last) / 1000, LONGEST_FRAME);
    this.last = now;
    this.frame = requestAnimationFrame((later) => this.tick(later));
    this.moveTo(this.clock + passed * this.speed);
  }

  /** Shows what the lanes had at a moment, in seconds of their clocks. */
  moveTo(seconds) {
    this.clock = within(seconds, this.length);
    let shown = 0;
    while (shown < this.rounds.length && this.rounds[shown].seconds <= this.clock + 1e-9) shown++; // a slider rounds
    this.set(shown);
  }

  step(by) {
    if (!this.held) return;
    this.pause();
    const shown = within(this.shown + by, this.rounds.length);
    this.clock = shown ? this.rounds[shown - 1].seconds : 0;
    this.set(shown);
    if (!this.apart.card.hidden) this.apart.take(this.rounds, this.shown, true);
  }

  seek(seconds) {
    const { playing } = this;
    this.pause();
    this.moveTo(seconds);
    if (playing && this.shown < this.rounds.length) this.play();
  }

  set(shown) {
    if (shown === this.shown) this.showState();
    else {
      this.shown = shown;
      this.render();
    }
    if (shown < this.rounds.length || !this.playing) return;
    if (this.growing) this.follow(); // the player has caught up with the run
    else this.pause();
  }

  /** Hands the view the rounds so far; figures and verdict are shown only at the end. */
  render() {
    this.showState();
    const over = this.shown === this.rounds.length;
    const ends = over ? {} : { phase: "running", figures: [], verdict: null, why: null };
    this.view.update({ ...this.value, ...ends, seenAgain: !this.growing, rounds: this.rounds.slice(0, this.shown) });
  }

  showBar() {
    const { parts, held, value } = this;
    parts.bar.hidden = !held;
    parts.facts.hidden = !held || !value.replay;
    if (held) parts.describe(value.replay || { label: this.growing ? PAUSED : "" });
    this.showState();
  }

  showState() {
    const { parts } = this;
    const end = this.held && this.shown === this.rounds.length;
    // What happens now and is not held can only be paused.
    parts.showPlay(this.playing || !this.held ? "playing" : end && !this.growing ? "over" : "paused");
    parts.back.disabled = !this.shown;
    parts.forward.disabled = end;
    if (this.held) parts.showTime(this.clock, this.length);
  }

  playSlowly() {
    this.pause();
    this.setSpeed("0.25");
    this.moveTo(0);
    this.play();
  }

  takeApart() {
    this.pause();
    this.apart.take(this.rounds, this.shown);
    this.apart.card.scrollIntoView({ behavior: STILL.matches ? "instant" : "smooth", block: "nearest" });
  }

  /** Space and arrows, where they have no other meaning: under a run that has ended they still scroll the page. */
  onKey(event) {
    const { target } = event;
    const { frame } = this.view;
    if (!this.held || event.defaultPrevented || modified(event)) return;
    if (!frame.contains(target) && (!this.value.replay || target !== document.body)) return;
    if (!frame.getClientRects().length || target.closest('[data-role="tokens"], .tree-scroll, select')) return;
    if (ARROWS[event.key]) this.step(ARROWS[event.key]);
    else if (event.key === " " && !target.closest("button, summary, input[type=checkbox]")) this.toggle();
    else return;
    event.preventDefault();
  }
}

window.SpecDemoPlayer = { mount: mounting(Player) };
