/*
 * The bar of the player: play, steps, seek and speed, below what is played.
 *
 * A plain script that defines `window.SpecDemoControls`; it is loaded after dom.js. What its parts do is the player's.
 *
 * @typedef {{title: string, label: string, date: string, prompt: ?string, facts: [string, string][]}} Replay
 */
(function () {
  "use strict";

  /** What the button calls what it will do next, by the state of what is played. */
  const PLAY = { playing: "Pause", paused: "Play", over: "Play again" };
  const { make, setText } = window.SpecDemoDom;

  function button(parent, action, label, title) {
    const made = make("button", "race-control", parent, null, { type: "button", "data-action": action, title });
    make("i", "race-glyph", made, null, { "aria-hidden": "true" });
    make("span", "race-spoken", made, label);
    return made;
  }

  const wide = (parent, action, label, title) => make("button", "race-control wide", parent, label, {
    type: "button", "data-action": action, title,
  });

  class Controls {
    constructor() {
      this.bar = make("section", "race-player", null, null, { "data-role": "player", "aria-label": "Replay" });
      this.about = make("div", "race-about", this.bar);
      this.label = make("span", "race-recorded", this.about, null, { "data-role": "recorded" });
      this.title = make("strong", "", this.about);
      this.prompt = make("q", "race-asked", this.about, null, { "data-role": "prompt-text" });
      const controls = make("div", "race-controls", this.bar);
      this.play = button(controls, "play", "Play", "Play or pause (space)");
      this.back = button(controls, "back", "One round back", "One round back (left arrow)");
      this.forward = button(controls, "forward", "One round forward", "One round forward (right arrow)");
      this.seek = make("input", "race-seek", controls, null, {
        type: "range", min: 0, max: 1, step: "any", value: 0, "aria-label": "Lane time", "data-role": "seek",
      });
      this.time = make("span", "race-time", controls, null, { "data-role": "time" });
      this.speed = make("select", "race-speed-choice", controls, null, {
        "aria-label": "Speed of the replay", title: "Speed; 1× is real time", "data-role": "speed",
      });
      for (const times of window.SpecDemoShared.speeds) make("option", "", this.speed, times + "×", { value: times });
      this.slow = wide(controls, "slow", "Watch at 0.25×", "Play from the beginning at a quarter of the speed");
      this.apart = wide(controls, "apart", "Take a round apart", "Show draft, check and outcome of the round played last");
      this.facts = make("details", "race-card race-facts", null, null, { "data-role": "facts" });
    }

    /** Says what is played. @param {Replay} replay */
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

  window.SpecDemoControls = { create: () => new Controls() };
})();
