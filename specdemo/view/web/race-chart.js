/*
 * The chart of the race view, by lane and on the lane's own clock: the tokens so far, whose gap is the speed-up, or
 * the tokens per second.
 *
 * A plain script that defines `window.SpecDemoChart`; it is loaded after race-plot.js. Points are kept here and drawn
 * as soon as Plotly is there and somebody sees the chart.
 */
(function () {
  "use strict";

  /** Lane seconds over which a speed averages; long enough to even out rounds of 1 and of γ+1 tokens. */
  const WINDOW = 0.4;
  /** Lane seconds between two points, and the points of a line at most: a longer run has them further apart. */
  const STEP = 0.05;
  const MOST = 300;
  /**
   * Milliseconds between two redraws, and how many times longer than a redraw that is at least: Plotly takes tens of
   * milliseconds, and the text must go on without jerks.
   */
  const PAUSE = 250;
  const SHARE = 8;
  const FORMS = {
    tokens: { name: "tokens", title: "Tokens by time", hover: "%{y:.0f} tokens" },
    rate: { name: "tokens/s", title: "Tokens per second", hover: "%{y:.0f} tok/s" },
  };

  const { LATE, OPTIONS, axis, baseLayout, literal, onTheme, readColours } = window.SpecDemoPlot;
  const { make, setText } = window.SpecDemoDom;

  /** Turns the rounds of one lane into points of lane clock, tokens, and tokens per second. */
  class Series {
    constructor() {
      this.ends = [];
      this.oldest = 0;
      this.points = { x: [], tokens: [], rate: [] };
      this.step = STEP;
      this.drawn = 0;
    }

    /** @param {number} clock lane clock at a round's end  @param {number} tokens of the output until then */
    add(clock, tokens) {
      this.ends.push([clock, tokens]);
      if (this.ends.length === 1 || clock - this.points.x.at(-1) >= this.step - 1e-9) this.point();
    }

    /** Speed is measured between the ends of two rounds: all tokens of a round appear at its end. */
    point() {
      const { ends, points } = this;
      const [clock, tokens] = ends.at(-1);
      while (this.oldest + 2 < ends.length && ends[this.oldest + 1][0] <= clock - WINDOW) this.oldest++;
      const [from, before] = ends[this.oldest];
      points.x.push(clock);
      points.tokens.push(tokens);
      points.rate.push(clock > from ? (tokens - before) / (clock - from) : null);
    }

    /** The last point, where the lane ended. */
    close() {
      if (this.ends.length > 1 && this.ends.at(-1)[0] - this.points.x.at(-1) > 1e-6) this.point();
    }

    /** Drops every second point of a line that has too many; true if it did. */
    thin() {
      if (this.points.x.length <= MOST) return false;
      for (const key in this.points) this.points[key] = this.points[key].filter((_, i, all) => i % 2 === 0 || i === all.length - 1);
      this.step *= 2;
      return true;
    }
  }

  /** The next 1, 1.5, 2, 3, 4, 6 or 8 times a power of ten: axes that grow in steps instead of trembling. */
  function roundUp(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    const step = [1, 1.5, 2, 3, 4, 6, 8, 10].find((s) => s * power >= value * 0.9999);
    return step * power;
  }

  /** The line of every lane: dashed grey for plain lanes, solid and of distinct colours for the others. */
  function lineStyles(lanes, colours) {
    const distinct = [colours.hero, colours.accepted, colours.corrected, colours.bonus];
    let next = 0;
    return lanes.map((lane) => lane.gamma > 0
      ? { color: distinct[next++ % distinct.length], dash: "solid", width: 2.5 }
      : { color: colours.plain, dash: "5px,4px", width: 2 });
  }

  function makeLayout(colours, ranges) {
    return {
      ...baseLayout(colours),
      xaxis: axis(colours, { range: [0, ranges.x], ticksuffix: " s", showgrid: false, nticks: 7, hoverformat: ".2f", showspikes: false }),
      yaxis: axis(colours, { range: [0, ranges.y], nticks: 5 }),
      margin: { l: 44, r: 18, t: 8, b: 26 }, hovermode: "x unified", dragmode: false,
    };
  }

  /** One chart in `host`, under a heading. `begin`, `add` and `finish` only store what is to be drawn. */
  class Chart {
    constructor({ plot, title }) {
      this.host = plot;
      this.title = title;
      this.width = 0;
      this.seen = true;
      this.timer = 0;
      this.lastDraw = this.took = 0;
      this.plotted = false;
      this.buildForms();
      this.begin([]);
      this.show("tokens");
      new ResizeObserver((entries) => this.resized(entries[0].contentRect.width)).observe(plot);
      new IntersectionObserver((entries) => this.scrolled(entries.at(-1).isIntersecting)).observe(plot);
      onTheme(() => this.recolour());
    }

    /** The switch between the two forms. */
    buildForms() {
      const group = make("div", "race-forms", null, null, { role: "group", "aria-label": "What the chart shows" });
      this.title.after(group);
      this.buttons = Object.keys(FORMS).map((form) => {
        const button = make("button", "", group, FORMS[form].name, { type: "button", "data-form": form });
        button.addEventListener("click", () => this.show(form));
        return button;
      });
    }

    /** Shows a form: `tokens` or `rate`. */
    show(form) {
      this.form = form;
      setText(this.title, FORMS[form].title);
      for (const button of this.buttons) button.setAttribute("aria-pressed", button.dataset.form === form);
      this.fitY();
      this.schedule(true);
    }

    /** The y axis begins anew: the two forms have little in common. */
    fitY() {
      this.ranges.y = this.over ? 1 : 20;
      this.stale = true;
      for (const series of this.series) series.drawn = 0;
    }

    /** Forgets the last run. @param {{title: string, gamma: number}[]} lanes */
    begin(lanes) {
      this.lanes = lanes;
      this.series = lanes.map(() => new Series());
      this.ranges = { x: 1, y: 20 };
      this.stale = true;
      this.over = false;
      this.schedule();
    }

    add(lane, clock, tokens, ended) {
      this.series[lane].add(clock, tokens);
      if (ended) this.series[lane].close();
      this.schedule();
    }

    /** Draws the ends of the lanes, without delay, on an axis that fits the whole run. */
    finish() {
      this.over = true;
      this.series.forEach((series) => series.close());
      const last = Math.max(0, ...this.series.map((series) => series.points.x.at(-1) || 0));
      if (last) this.ranges.x = last * 1.02;
      this.fitY();
      this.schedule(true);
    }

    schedule(now) {
      if (this.timer && !now) return;
      clearTimeout(this.timer);
      const wait = now ? 0 : Math.max(0, this.lastDraw + Math.max(PAUSE, SHARE * this.took) - performance.now());
      this.timer = setTimeout(() => this.draw(), wait);
    }

    draw() {
      this.timer = 0;
      if (!window.Plotly) {
        this.timer = setTimeout(() => this.draw(), LATE);
      } else if (this.width && (this.seen || this.over)) { // else `resized` or `scrolled` comes back here
        const began = performance.now();
        if (this.series.filter((series) => series.thin()).length) this.fitY();
        if (this.growRanges() || this.stale || !this.plotted) this.drawAll();
        else this.extend();
        this.series.forEach((series) => { series.drawn = series.points.x.length; });
        this.lastDraw = performance.now();
        this.took = this.lastDraw - began;
      }
    }

    /** Makes room for new points; true if an axis had to change. */
    growRanges() {
      const { x, y } = this.ranges;
      for (const { points, drawn } of this.series) {
        for (let i = drawn; i < points.x.length; i++) {
          const value = points[this.form][i] * 1.08;
          if (points.x[i] > this.ranges.x) this.ranges.x = roundUp(points.x[i] * 1.05);
          if (value > this.ranges.y) this.ranges.y = this.over ? value : roundUp(value);
        }
      }
      return x !== this.ranges.x || y !== this.ranges.y;
    }

    /** Draws everything: at the beginning and the end of a run, and where an axis grows. */
    drawAll() {
      this.colours = readColours(this.host);
      const styles = lineStyles(this.lanes, this.colours);
      const lines = this.series.map(({ points }, i) => ({
        type: "scatter", mode: "lines", name: literal(this.lanes[i].title), x: points.x.slice(),
        y: points[this.form].slice(), line: styles[i], hovertemplate: FORMS[this.form].hover,
      }));
      const heads = this.series.map(({ points }, i) => ({
        type: "scatter", mode: "markers", x: points.x.slice(-1), y: points[this.form].slice(-1), hoverinfo: "skip",
        cliponaxis: false, marker: { size: 7, color: styles[i].color },
      }));
      const layout = makeLayout(this.colours, this.ranges);
      layout.xaxis.showticklabels = layout.yaxis.showticklabels = lines.length > 0;
      window.Plotly.react(this.host, lines.concat(heads), layout, OPTIONS);
      this.plotted = true;
      this.stale = false;
    }

    /** Adds the new points to the lines, and moves the dots at their ends. */
    extend() {
      const count = this.series.length;
      const grew = this.series.map((series, i) => i).filter((i) => this.series[i].drawn < this.series[i].points.x.length);
      if (!grew.length) return;
      const fresh = (key) => grew.map((i) => this.series[i].points[key].slice(this.series[i].drawn))
        .concat(grew.map((i) => this.series[i].points[key].slice(-1)));
      const most = grew.map(() => 1e6).concat(grew.map(() => 1));
      window.Plotly.extendTraces(this.host, { x: fresh("x"), y: fresh(this.form) },
        grew.concat(grew.map((i) => count + i)), { x: most, y: most });
    }

    resized(width) {
      const before = this.width;
      this.width = width;
      if (!width || width === before) return;
      if (this.plotted) requestAnimationFrame(() => this.plotted && window.Plotly.Plots.resize(this.host));
      else this.schedule();
    }

    scrolled(seen) {
      this.seen = seen;
      if (seen) this.schedule();
    }

    /** Draws the same points in the colours of a new theme. */
    recolour() {
      if (!this.plotted || readColours(this.host).ink === this.colours.ink) return;
      this.stale = true;
      this.schedule(true);
    }
  }

  window.SpecDemoChart = { create: (card) => new Chart(card) };
})();
