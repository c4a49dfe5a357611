/*
 * One moment of the lanes' clocks, marked in the text, the chart and the timeline of the race view at once.
 *
 * A plain script that defines `window.SpecDemoMoment`; it is loaded after race-area.js. Pointing at a token says its
 * moment by an event `race-moment` of the frame, whose detail is the seconds, or null when the pointer leaves.
 */
(function () {
  "use strict";

  const { make } = window.SpecDemoDom;

  class Moment {
    /**
     * @param {Element} frame of the view  @param {Element[]} plots that have lane seconds on their x axes
     * @param {() => {text: Area}[]} lanes  @param {() => boolean} still whether the text may be scrolled
     */
    constructor(frame, plots, lanes, still) {
      this.lanes = lanes;
      this.still = still;
      this.lines = new Map(plots.map((plot) => [plot, make("i", "race-now", plot.parentElement, null, { hidden: "" })]));
      this.frame = 0;
      frame.addEventListener("race-moment", (event) => this.mark(event.detail, null));
      for (const plot of plots) {
        plot.addEventListener("pointermove", (event) => this.point(plot, event.clientX));
        plot.addEventListener("pointerleave", () => this.mark(null, plot));
      }
    }

    /** Follows the pointer over a plot, once a frame. */
    point(plot, clientX) {
      cancelAnimationFrame(this.frame);
      this.frame = requestAnimationFrame(() => {
        const axis = plot._fullLayout?.xaxis;
        if (!axis) return;
        const seconds = axis.p2l(clientX - plot.getBoundingClientRect().left - axis._offset);
        this.mark(seconds >= 0 && seconds <= axis.range[1] ? seconds : null, plot);
      });
    }

    /** @param {?number} seconds  @param {?Element} from the plot that was pointed at; null for a token */
    mark(seconds, from) {
      if (seconds === null) cancelAnimationFrame(this.frame);
      for (const [plot, line] of this.lines) {
        const axis = plot._fullLayout?.xaxis;
        line.hidden = seconds === null || !axis || seconds > axis.range[1];
        if (!line.hidden) line.style.left = `${plot.offsetLeft + axis._offset + axis.l2p(seconds)}px`;
      }
      for (const lane of this.lanes()) lane.text.mark(seconds, from !== null && this.still());
    }
  }

  window.SpecDemoMoment = { link: (...parts) => new Moment(...parts) };
})();
