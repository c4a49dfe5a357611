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
  const { button, make, setText } = window.SpecDemoDom;

  /**
   * The line of one lane: lane clock, and tokens or tokens per second. Speed is measured between the ends of two
   * rounds, since all tokens of a round appear at its end.
   *
   * @param {Round[]} rounds of the lane; a server's pieces of text are not counted
   */
  function lineOf(rounds, form) {
    const line = { x: [], y: [] };
    let output = 0;
    /** Of the rounds' ends: lane clock, and tokens of the output until then. */
    const ends = rounds.some((round) => round.pieces) ? [] : rounds.map((round) => [round.seconds, output += round.kept]);
    const step = Math.max(STEP, (ends.at(-1)?.[0] || 0) / MOST);
    let oldest = 0;
    ends.forEach(([clock, tokens], i) => {
      if (i && i < ends.length - 1 && clock - line.x.at(-1) < step - 1e-9) return;
      while (oldest + 2 <= i && ends[oldest + 1][0] <= clock - WINDOW) oldest++;
      const [from, before] = ends[oldest];
      line.x.push(clock);
      line.y.push(form === "tokens" ? tokens : clock > from ? (tokens - before) / (clock - from) : null);
    });
    return line;
  }

  /** The next 1, 1.5, 2, 3, 4, 6 or 8 times a power of ten: axes that grow in steps instead of trembling. */
  function roundUp(value) {
    if (!value) return 0;
    const power = 10 ** Math.floor(Math.log10(value));
    const step = [1, 1.5, 2, 3, 4, 6, 8, 10].find((s) => s * power >= value * 0.9999);
    return step * power;
  }

  /** The line of every lane: dashed grey for plain lanes, solid and of distinct colours for the others. */
  function lineStyles(lanes, colours) {
    const distinct = [colours.hero, colours.accepted, colours.corrected, colours.bonus];
    let next = 0;
    return lanes.map(({ spec }) => spec.gamma > 0
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

  /** One chart in `host`, under a heading. It draws what the lanes hold. */
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
      onTheme(() => this.plotted && this.schedule(true));
    }

    /** The switch between the two forms. */
    buildForms() {
      const group = make("div", "race-forms", null, null, { role: "group", "aria-label": "What the chart shows" });
      this.title.after(group);
      this.buttons = Object.keys(FORMS).map((form) => {
        const made = button(group, "", FORMS[form].name, () => this.show(form));
        made.dataset.form = form;
        return made;
      });
    }

    /** Shows a form: `tokens` or `rate`. */
    show(form) {
      this.form = form;
      setText(this.title, FORMS[form].title);
      for (const each of this.buttons) each.setAttribute("aria-pressed", each.dataset.form === form);
      this.schedule(true);
    }

    /** Forgets the last run. @param {{spec: LaneSpec, rounds: Round[]}[]} lanes whose rounds are drawn from now on */
    begin(lanes) {
      this.lanes = lanes;
      this.over = false;
      this.schedule();
    }

    /** Draws without delay, on axes that fit the whole run. */
    finish() {
      this.over = true;
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
        this.plot();
        this.lastDraw = performance.now();
        this.took = this.lastDraw - began;
      }
    }

    plot() {
      const colours = readColours(this.host);
      const styles = lineStyles(this.lanes, colours);
      const points = this.lanes.map(({ rounds }) => lineOf(rounds, this.form));
      const lines = points.map((line, i) => ({
        type: "scatter", mode: "lines", name: literal(this.lanes[i].spec.title), ...line, line: styles[i],
        hovertemplate: FORMS[this.form].hover,
      }));
      const heads = points.map(({ x, y }, i) => ({
        type: "scatter", mode: "markers", x: x.slice(-1), y: y.slice(-1), hoverinfo: "skip", cliponaxis: false,
        marker: { size: 7, color: styles[i].color },
      }));
      const layout = makeLayout(colours, this.ranges(points));
      layout.xaxis.showticklabels = layout.yaxis.showticklabels = lines.length > 0;
      window.Plotly.react(this.host, lines.concat(heads), layout, OPTIONS);
      this.plotted = true;
    }

    /** The ends of the axes: of the whole run at its end, and with room to grow before. */
    ranges(points) {
      const [x, y] = ["x", "y"].map((name) => Math.max(0, ...points.flatMap((line) => line[name])));
      if (this.over && x) return { x: x * 1.02, y: Math.max(1, y * 1.08) };
      return { x: Math.max(1, roundUp(x * 1.05)), y: Math.max(20, roundUp(y * 1.08)) };
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
  }

  window.SpecDemoChart = { create: (card) => new Chart(card) };
})();
