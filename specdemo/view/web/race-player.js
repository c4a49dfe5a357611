/*
 * The player of the race view: it hands the view the rounds that the lanes had finished at a moment of their clocks.
 *
 * A plain script that defines `window.SpecDemoPlayer`; it is loaded after race.js and knows nothing of Gradio. A
 * value without `replay` is a run that happens now, and is handed on at once. When a person pauses such a run, the
 * rounds so far are played like a recording that still grows, until the player has caught up with the run.
 *
 * @typedef {{title: string, label: string, date: string, prompt: ?string, facts: [string, string][]}} Replay
 */
(function () {
  "use strict";

  const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
  /** Seconds that may pass between two frames; with more, the page was hidden, and the clock must stand still. */
  const LONGEST_FRAME = 0.25;
  const HELD = { running: "Paused; decoding goes on behind it", over: "The run that just ended" };

  const { ARROWS, OVER, make, setText, parseRounds, mounting } = window.SpecDemoDom;

  /** The rounds of a value after the first `known`, by lane clock. The sort keeps the order within each lane. */
  const roundsOf = (value, known = 0) => parseRounds(value.rounds).slice(known).sort((a, b) => a.seconds - b.seconds);

  const latest = (rounds) => rounds.reduce((most, round) => Math.max(most, round.seconds), 0);

  const within = (value, most) => Math.min(Math.max(0, value), most);

  function button(parent, action, label, title) {
    const made = make("button", "race-control", parent, null, { type: "button", "data-action": action, title });
    make("i", "race-glyph", made, null, { "aria-hidden": "true" });
    make("span", "race-spoken", made, label);
    return made;
  }

  /** Play, step, seek and speed, below what was recorded and where. */
  function buildBar() {
    const bar = make("section", "race-player", null, null, { "data-role": "player", "aria-label": "Replay" });
    const about = make("div", "race-about", bar);
    const label = make("span", "race-recorded", about, null, { "data-role": "recorded" });
    const title = make("strong", "", about);
    const prompt = make("q", "race-asked", about, null, { "data-role": "prompt-text" });
    const controls = make("div", "race-controls", bar);
    const play = button(controls, "play", "Play", "Play or pause (space)");
    const back = button(controls, "back", "One round back", "One round back (left arrow)");
    const forward = button(controls, "forward", "One round forward", "One round forward (right arrow)");
    const seek = make("input", "race-seek", controls, null, {
      type: "range", min: 0, max: 1, step: "any", value: 0, "aria-label": "Lane time", "data-role": "seek",
    });
    const time = make("span", "race-time", controls, null, { "data-role": "time" });
    const speed = make("select", "race-speed-choice", controls, null, {
      "aria-label": "Speed of the replay", title: "Speed; 1× is real time", "data-role": "speed",
    });
    for (const times of SPEEDS) make("option", "", speed, times + "×", { value: times });
    return { bar, label, title, prompt, play, back, forward, seek, time, speed };
  }

  class Player {
    constructor(root) {
      this.view = window.SpecDemoRace.mount(root);
      this.parts = buildBar();
      this.facts = make("details", "race-card race-facts", this.view.frame, null, { "data-role": "facts" });
      this.view.frame.insertBefore(this.parts.bar, this.view.laneRow);
      this.value = null;
      this.live = null;
      this.held = false;
      this.rounds = [];
      this.frame = 0;
      /** How the next recording begins, where a link says so: its speed, and whether it waits for Play. */
      this.opening = null;
      this.show(false);
      this.listen();
    }

    /** Shows a run as it is, or begins to play a recording. */
    update(value) {
      if (value && this.held && [value.run, value.replaces].includes(this.value.run)) {
        this.grow(value);
      } else if (!value?.replay) {
        this.leave();
        this.live = value;
        this.view.update(value);
      } else if (this.value?.run !== value.run) {
        this.open(value);
      } else {
        this.render(true);
      }
    }

    open(value) {
      this.leave();
      this.live = null;
      this.take(value);
      this.shown = null;
      this.shownUntil = 0;
      this.describe(value.replay);
      this.show(true);
      if (this.view.frame.getBoundingClientRect().top < 0) this.view.frame.scrollIntoView();
      this.view.update(null); // removes the run before, which may have the same name
      this.moveTo(0);
      const { speed = "1", waits = false } = this.opening || {};
      this.opening = null;
      this.parts.speed.value = speed;
      this.speed = Number(speed);
      if (waits) return;
      if (matchMedia("(prefers-reduced-motion: reduce)").matches) this.moveTo(this.length);
      else this.play();
    }

    /** Sets the rounds to be played. Those in `before` come first, and the rest of the value's rounds after them. */
    take(value, before = []) {
      this.value = value;
      this.rounds = [...before, ...roundsOf(value, before.length)];
      this.length = latest(this.rounds);
      this.parts.seek.max = this.length || 1;
    }

    describe(replay) {
      const { label, title, prompt } = this.parts;
      label.textContent = [replay.label, replay.date].filter(Boolean).join(", ");
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

    /** Ends the replay. */
    leave() {
      this.pause();
      this.value = null;
      this.held = false;
      this.speed = 1;
      this.parts.speed.value = "1";
      this.show(false);
    }

    show(shown) {
      this.parts.bar.hidden = !shown;
      this.facts.hidden = !shown || this.held;
    }

    // ---- a run that happens now, and is paused -------------------------------------------------------------------

    /** Whether more rounds may come. */
    get growing() {
      return this.held && !OVER.has(this.value.phase);
    }

    /** Pauses the view of a run that happens now; true if there is one. What is shown does not change. */
    hold() {
      if (this.value || !this.live?.rounds.length) return false;
      this.held = true;
      this.take(this.live);
      this.shown = this.rounds.length;
      this.clock = this.shownUntil = this.length;
      this.describe({ label: HELD[this.growing ? "running" : "over"] });
      this.show(true);
      this.showState();
      return true;
    }

    /** Takes more rounds of the paused run: a person can step to them, but nothing moves by itself. */
    grow(value) {
      this.live = value;
      if (value.phase === "stopped" || value.phase === "error") {
        this.release();
        return;
      }
      if (value.run !== this.value.run) { // its rounds were sent anew, now that the server has reported them
        this.take(value);
        this.shown = null;
        this.parts.label.textContent = HELD.over;
        this.moveTo(this.clock);
        return;
      }
      // A lane whose clock is behind may still send rounds of a moment that is already shown. They come next, so
      // that a step back never shows more than before.
      this.take(value, this.rounds);
      if (!this.growing) this.parts.label.textContent = HELD.over;
      this.showState();
    }

    /** Shows the run as it happens again. */
    release() {
      const { live } = this;
      this.leave();
      this.view.update(live);
    }

    /** Plays, or pauses what plays or happens now. */
    toggle() {
      if (this.playing) this.pause();
      else if (this.value) this.play();
      else if (this.hold() && !this.growing) this.play(); // a run that is over is played again
    }

    /** One round forward or back, whether a recording or a run is shown. */
    stepAny(by) {
      this.hold();
      this.step(by);
    }

    // ---- the clock -----------------------------------------------------------------------------------------------

    get playing() {
      return this.frame !== 0;
    }

    play() {
      if (!this.value || this.playing) return;
      if (this.shown === this.rounds.length) {
        if (this.growing) {
          this.release();
          return;
        }
        this.moveTo(0);
      }
      this.last = performance.now();
      this.frame = requestAnimationFrame((now) => this.tick(now));
      this.showState();
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
      let shown = this.clock < this.shownUntil ? 0 : this.shown || 0;
      while (shown < this.rounds.length && this.rounds[shown].seconds <= this.clock) shown++;
      this.set(shown);
    }

    /** One round forward or back. */
    step(by) {
      if (!this.value) return;
      this.pause();
      const shown = within(this.shown + by, this.rounds.length);
      this.clock = shown ? this.rounds[shown - 1].seconds : 0;
      this.set(shown);
    }

    seek(seconds) {
      const { playing } = this;
      this.pause();
      this.moveTo(seconds);
      if (playing && this.shown < this.rounds.length) this.play();
    }

    set(shown) {
      const changed = shown !== this.shown;
      this.shown = shown;
      if (changed) this.shownUntil = latest(this.rounds.slice(0, shown));
      this.render(changed);
      if (shown < this.rounds.length || !this.playing) return;
      if (this.growing) this.release(); // the player has caught up with the run
      else this.pause();
    }

    /** Hands the view the rounds so far; figures and verdict are shown only at the end. */
    render(changed) {
      this.showState();
      if (!changed) return;
      const over = this.shown === this.rounds.length;
      const ends = over ? {} : { phase: "running", figures: [], verdict: null, why: null };
      // The rounds of a paused run are counted one by one, so to the view it is another run.
      const run = this.held ? `${this.value.run} held` : this.value.run;
      this.view.update({ ...this.value, ...ends, run, rounds: this.rounds.slice(0, this.shown) });
    }

    // ---- the controls --------------------------------------------------------------------------------------------

    showState() {
      const { play, back, forward, seek, time } = this.parts;
      const end = Boolean(this.value) && this.shown === this.rounds.length;
      const over = end && !this.growing;
      play.dataset.state = this.playing ? "playing" : over ? "over" : "paused";
      setText(play.lastChild, this.playing ? "Pause" : over ? "Play again" : "Play");
      back.disabled = !this.shown;
      forward.disabled = end;
      if (!this.value) return;
      seek.value = this.clock;
      setText(time, `${this.clock.toFixed(2)} of ${this.length.toFixed(2)} s`);
      seek.setAttribute("aria-valuetext", time.textContent);
    }

    listen() {
      const { play, back, forward, seek, speed } = this.parts;
      play.addEventListener("click", () => this.toggle());
      back.addEventListener("click", () => this.step(-1));
      forward.addEventListener("click", () => this.step(1));
      seek.addEventListener("input", () => this.seek(Number(seek.value)));
      speed.addEventListener("change", () => { this.speed = Number(speed.value); });
      document.addEventListener("keydown", (event) => this.onKey(event));
    }

    /** Space and arrows, where they have no other meaning. */
    onKey(event) {
      const { target } = event;
      const { frame } = this.view;
      if (!this.value || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
      if (target !== document.body && !frame.contains(target)) return;
      if (!frame.getClientRects().length || target.closest('[data-role="tokens"], select')) return;
      if (ARROWS[event.key]) this.step(ARROWS[event.key]);
      else if (event.key === " " && !target.closest("button, summary, input[type=checkbox]")) this.toggle();
      else return;
      event.preventDefault();
    }
  }

  window.SpecDemoPlayer = { mount: mounting(Player) };
})();
