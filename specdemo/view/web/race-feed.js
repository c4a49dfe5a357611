/*
 * Receives the race view's value from the server and hands it to the player, once a frame.
 *
 * A plain script that defines `window.SpecDemoFeed`; it is loaded after race-player.js. While a run goes on the server
 * sends only its latest bundles of rounds, each with its number: Gradio copies and compares the whole value at every
 * update. The rounds before them are kept here. Who was too slow for some asks for all of them.
 *
 * @typedef {{run: string, phase: string, rounds: string[], news: ?Array<?[number, string]>}} Sent  `rounds`: all
 *   bundles, or none; `news`: the latest ones with their numbers, in any order
 */
(function () {
  "use strict";

  const { parseRounds, mounting } = window.SpecDemoDom;

  class Feed {
    constructor(root) {
      this.player = window.SpecDemoPlayer.mount(root);
      this.begin(null);
      this.value = null;
      this.frame = 0;
    }

    begin(run) {
      this.run = run;
      this.rounds = [];
      this.bundles = 0;
    }

    /** @param {?Sent} value  @param {function} ask for all rounds, since some were missed */
    receive(value, ask) {
      if (value?.run !== this.run) this.begin(value?.run);
      if (value && !this.take(value)) ask();
      this.value = value ? { ...value, rounds: this.rounds } : null;
      if (document.hidden) this.show(); // there are no frames then
      else this.frame ||= requestAnimationFrame(() => this.show());
    }

    /** Adds the bundles that are new; false if some are missing. */
    take({ rounds, news }) {
      const numbered = rounds.map((bundle, number) => [number, bundle]);
      for (const slot of news || []) if (slot) numbered.push(slot);
      numbered.sort((a, b) => a[0] - b[0]);
      for (const [number, bundle] of numbered) {
        if (number > this.bundles) return false;
        if (number === this.bundles) {
          this.rounds.push(...parseRounds([bundle]));
          this.bundles++;
        }
      }
      return true;
    }

    show() {
      cancelAnimationFrame(this.frame);
      this.frame = 0;
      this.player.update(this.value);
    }
  }

  window.SpecDemoFeed = { mount: mounting(Feed) };
})();
