/*
 * The player of the race view: it hands the view the rounds that the lanes had finished at a moment of their clocks.
 *
 * A plain script that defines `window.SpecDemoPlayer`; it is loaded after race.js and knows nothing of Gradio. A
 * value without `replay` is a run that happens now, and is handed on at once. When a person pauses such a run, the
 * rounds so far are played like a recording that still grows, until the player has caught up with the run; when the
 * run ends, the player holds all of it, to be seen again.
 */
(function () {
  "use strict";

  /** Seconds that may pass between two frames; with more, the page was hidden, and the clock must stand still. */
  const LONGEST_FRAME = 0.25;
  const HELD = { running: "Paused; decoding goes on behind it", over: "" };

  const { ARROWS, OVER, parseRounds, mounting } = window.SpecDemoDom;

  /** The rounds of a value after the first `known`, by lane clock. The sort keeps the order within each lane. */
  const roundsOf = (value, known = 0) => parseRounds(value.rounds).slice(known).sort((a, b) => a.seconds - b.seconds);

  const latest = (rounds) => rounds.reduce((most, round) => Math.max(most, round.seconds), 0);

  const within = (value, most) => Math.min(Math.max(0, value), most);

  class Player {
    constructor(root) {
      this.view = window.SpecDemoRace.mount(root);
      this.parts = window.SpecDemoControls.create();
      this.apart = window.SpecDemoApart.create(this.view.tree);
      this.view.tree.card.after(this.parts.bar, this.apart.card);
      this.view.frame.append(this.parts.facts);
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
        this.stand();
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
      this.parts.describe(value.replay);
      this.show(true);
      if (this.view.frame.getBoundingClientRect().top < 0) this.view.frame.scrollIntoView();
      this.view.update(null); // removes the run before, which may have the same name
      this.moveTo(0);
      const { speed = "1", waits = false } = this.opening || {};
      this.opening = null;
      this.setSpeed(speed);
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

    /** Ends the replay. */
    leave() {
      this.value = null;
      this.held = false;
      this.pause();
      this.setSpeed("1");
      this.show(false);
    }

    show(shown) {
      this.parts.bar.hidden = !shown;
      this.parts.facts.hidden = !shown || this.held;
      this.apart.close();
    }

    /** Stands under a run that has just ended, to show it again. */
    stand() {
      if (!OVER.has(this.live?.phase) || !this.hold()) return;
      this.apart.greet(this.rounds);
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
      this.parts.describe({ label: HELD[this.growing ? "running" : "over"] });
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
        this.parts.describe({ label: HELD.over });
        this.moveTo(this.clock);
        return;
      }
      // A lane whose clock is behind may still send rounds of a moment that is already shown. They come next, so
      // that a step back never shows more than before.
      this.take(value, this.rounds);
      if (!this.growing) this.parts.describe({ label: HELD.over });
      this.showState();
    }

    /** Shows the run as it happens again. Its rounds may have come in another order, of which the view saw nothing. */
    release() {
      const { live } = this;
      this.take(live, live.run === this.value.run ? this.rounds : []);
      this.leave();
      this.view.update({ ...live, rounds: this.rounds });
      this.stand();
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
      this.view.update({ ...this.value, ...ends, seenAgain: !this.growing, rounds: this.rounds.slice(0, this.shown) });
    }

    // ---- the controls --------------------------------------------------------------------------------------------

    showState() {
      const { parts } = this;
      const end = Boolean(this.value) && this.shown === this.rounds.length;
      // What happens now and is not held can only be paused.
      parts.showPlay(this.playing || !this.value ? "playing" : end && !this.growing ? "over" : "paused");
      parts.back.disabled = !this.shown;
      parts.forward.disabled = end;
      if (this.value) parts.showTime(this.clock, this.length);
    }

    listen() {
      const { play, back, forward, seek, speed, slow, apart } = this.parts;
      play.addEventListener("click", () => this.toggle());
      back.addEventListener("click", () => this.step(-1));
      forward.addEventListener("click", () => this.step(1));
      seek.addEventListener("input", () => this.seek(Number(seek.value)));
      speed.addEventListener("change", () => this.setSpeed(speed.value));
      slow.addEventListener("click", () => {
        this.pause();
        this.setSpeed("0.25");
        this.moveTo(0);
        this.play();
      });
      apart.addEventListener("click", () => {
        this.pause();
        if (!this.apart.openLast(this.rounds.slice(0, this.shown))) this.apart.openLast(this.rounds);
      });
      document.addEventListener("keydown", (event) => this.onKey(event));
    }

    /** Space and arrows, where they have no other meaning: under a run that has ended they still scroll the page. */
    onKey(event) {
      const { target } = event;
      const { frame } = this.view;
      if (!this.value || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
      if (!frame.contains(target) && (this.held || target !== document.body)) return;
      if (!frame.getClientRects().length || target.closest('[data-role="tokens"], .tree-scroll, select')) return;
      if (ARROWS[event.key]) this.step(ARROWS[event.key]);
      else if (event.key === " " && !target.closest("button, summary, input[type=checkbox]")) this.toggle();
      else return;
      event.preventDefault();
    }
  }

  window.SpecDemoPlayer = { mount: mounting(Player) };
})();
