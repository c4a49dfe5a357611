/*
 * Fetches the rounds of a race as they come, and hands them to the player with the value they belong to.
 *
 * A plain script that defines `window.SpecDemoFeed`; it is loaded after race-player.js. The server's values say how many
 * rounds there are (specdemo/ui/tabs/round_streams.py). Each is fetched once; a page that was hidden, busy or slow
 * fetches more of them at once, and values that were overtaken meanwhile are not shown.
 *
 * @typedef {{run: string, phase: string, count: number}} Sent
 */
(function () {
  "use strict";

  /** Milliseconds until a request that failed is sent again. */
  const AGAIN = 1000;
  const { mounting } = window.SpecDemoDom;

  const frame = () => (document.hidden ? null : new Promise(requestAnimationFrame));

  class Feed {
    constructor(root) {
      this.player = window.SpecDemoPlayer.mount(root);
      this.value = this.run = null;
      this.rounds = [];
      this.busy = false;
    }

    /** Shows a value as soon as its rounds are here. @param {?Sent} value  @param {([run, from]) => Promise<Round[]>} fetch */
    async receive(value, fetch) {
      this.value = value;
      if (this.busy) return; // whoever is busy goes on with the newest value
      this.busy = true;
      for (let shown; shown !== this.value;) {
        shown = this.value;
        await this.follow(shown, fetch);
        await frame();
        this.player.update(shown && { ...shown, rounds: this.rounds });
      }
      this.busy = false;
    }

    /** Fetches the rounds of a value that are not here. */
    async follow(value, fetch) {
      if (value?.run !== this.run) [this.run, this.rounds] = [value?.run, []];
      while (value?.count > this.rounds.length && value === this.value) {
        try {
          this.rounds.push(...await fetch([this.run, this.rounds.length]));
          return; // the server may have forgotten a run of long ago
        } catch {
          await new Promise((resolve) => setTimeout(resolve, AGAIN));
        }
      }
    }
  }

  window.SpecDemoFeed = { mount: mounting(Feed) };
})();
