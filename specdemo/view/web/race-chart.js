/*
 * The chart of the race view: tokens per second of every lane, on the lane's own clock; and what it shares with the
 * timeline.
 *
 * A plain script that defines `window.SpecDemoChart`; it is loaded after dom.js. It needs Plotly, which may arrive
 * later: points are kept here and drawn as soon as it is there.
 */
(function () {
  "use strict";

  /** Lane seconds over which one point averages; long enough to even out rounds of 1 and of γ+1 tokens. */
  const WINDOW = 0.4;
  /** Lane seconds between two points. */
  const STEP = 0.1;
  /** Milliseconds between two redraws: Plotly takes tens of them, and the text must go on without jerks. */
  const PAUSE = 250;
  /** Milliseconds after which to look again whether Plotly has arrived. */
  const LATE = 200;
  const OPTIONS = { displayModeBar: false, responsive: false };

  /** Turns the rounds of one lane into points of (lane clock, tokens per second). */
  class Series {
    constructor() {
      this.ends = [];
      this.oldest = 0;
      this.x = [];
      this.y = [];
      this.drawn = 0;
    }

    /** @param {number} clock lane clock at a round's end  @param {number} emitted tokens decoded until then */
    add(clock, emitted) {
      this.ends.push([clock, emitted]);
      if (this.ends.length > 1 && clock - this.latest() >= STEP - 1e-9) this.point();
    }

    /** The clock of the last point, or of the prefill's end before there is one. */
    latest() {
      return this.x.at(-1) ?? this.ends[0][0];
    }

    /** Measures between the ends of two rounds: all tokens of a round appear at its end. */
    point() {
      const [clock, emitted] = this.ends.at(-1);
      while (this.oldest + 2 < this.ends.length && this.ends[this.oldest + 1][0] <= clock - WINDOW) this.oldest++;
      const [from, before] = this.ends[this.oldest];
      if (clock <= from) return;
      this.x.push(clock);
      this.y.push((emitted - before) / (clock - from));
    }

    /** The last point, where the lane ended. */
    close() {
      if (this.ends.length > 1 && this.ends.at(-1)[0] - this.latest() > 1e-6) this.point();
    }
  }

  /** The next 1, 1.5, 2, 3, 4, 6 or 8 times a power of ten: axes that grow in steps instead of trembling. */
  function roundUp(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    const step = [1, 1.5, 2, 3, 4, 6, 8, 10].find((s) => s * power >= value * 0.9999);
    return step * power;
  }

  // ---- shared with the timeline --------------------------------------------------------------------------------

  /**
   * The colours of the view in its present theme. They are read from an element that has them: what the property
   * itself holds is still the choice between light and dark.
   */
  function readColours(host) {
    const probe = window.SpecDemoDom.make("i", "", host);
    const read = (name) => {
      probe.style.color = `var(--race-${name})`;
      return getComputedStyle(probe).color;
    };
    const names = ["ink", "dim", "grid", "card", "line", "plain", "hero", "accepted", "corrected", "bonus"];
    const colours = Object.fromEntries(names.map((name) => [name, read(name)]));
    probe.remove();
    return colours;
  }

  /** Calls `act` when the page changes between light and dark. */
  function onTheme(act) {
    const observer = new MutationObserver(act);
    for (const element of [document.documentElement, document.body]) {
      observer.observe(element, { attributes: true, attributeFilter: ["class"] });
    }
  }

  function axis(colours, extra) {
    return {
      gridcolor: colours.grid, linecolor: colours.line, zerolinecolor: colours.line, tickcolor: colours.line,
      tickfont: { color: colours.dim, size: 11.5 }, fixedrange: true, zeroline: true, automargin: false, ...extra,
    };
  }

  function baseLayout(colours) {
    return {
      showlegend: false, autosize: true, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: colours.ink },
      hoverlabel: { bgcolor: colours.card, bordercolor: colours.line, font: { color: colours.ink, size: 12 }, align: "left" },
    };
  }

  /** A text as Plotly shows it unchanged: Plotly reads tags, links among them. */
  const literal = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");

  // ---- the chart -----------------------------------------------------------------------------------------------

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
      xaxis: axis(colours, { range: [0, ranges.x], ticksuffix: " s", showgrid: false, nticks: 7, hoverformat: ".2f" }),
      yaxis: axis(colours, { range: [0, ranges.y], nticks: 5 }),
      margin: { l: 40, r: 18, t: 8, b: 26 }, hovermode: "x unified", dragmode: false,
    };
  }

  /** One chart in `host`. `begin`, `add` and `finish` only store what is to be drawn. */
  class Chart {
    constructor(host) {
      this.host = host;
      this.width = 0;
      this.timer = 0;
      this.lastDraw = 0;
      this.plotted = false;
      this.begin([]);
      new ResizeObserver((entries) => this.resized(entries[0].contentRect.width)).observe(host);
      onTheme(() => this.recolour());
    }

    /** Forgets the last run. @param {{title: string, gamma: number}[]} lanes */
    begin(lanes) {
      this.lanes = lanes;
      this.series = lanes.map(() => new Series());
      this.ranges = { x: 1, y: 20 };
      this.stale = true;
      this.schedule();
    }

    add(lane, clock, emitted, ended) {
      this.series[lane].add(clock, emitted);
      if (ended) this.series[lane].close();
      this.schedule();
    }

    /** Draws the ends of the lanes, without delay, on axes that fit the whole run. */
    finish() {
      this.series.forEach((series) => series.close());
      const last = Math.max(0, ...this.series.map((series) => series.x.at(-1) || 0));
      if (last) this.ranges.x = last * 1.02;
      this.stale = true;
      this.schedule(true);
    }

    schedule(now) {
      if (this.timer && !now) return;
      clearTimeout(this.timer);
      const wait = now ? 0 : Math.max(0, this.lastDraw + PAUSE - performance.now());
      this.timer = setTimeout(() => this.draw(), wait);
    }

    draw() {
      this.timer = 0;
      if (!window.Plotly) {
        this.timer = setTimeout(() => this.draw(), LATE);
      } else if (this.width) { // in a hidden tab there is no width; `resized` comes back here
        this.lastDraw = performance.now();
        const grown = this.growRanges();
        if (this.stale || !this.plotted) this.drawAll();
        else this.extend(grown);
        this.series.forEach((series) => { series.drawn = series.x.length; });
      }
    }

    /** Makes room for new points; true if an axis had to change. */
    growRanges() {
      const { x, y } = this.ranges;
      for (const series of this.series) {
        for (let i = series.drawn; i < series.x.length; i++) {
          if (series.x[i] > this.ranges.x) this.ranges.x = roundUp(series.x[i] * 1.05);
          if (series.y[i] * 1.08 > this.ranges.y) this.ranges.y = roundUp(series.y[i] * 1.08);
        }
      }
      return x !== this.ranges.x || y !== this.ranges.y;
    }

    /** Draws everything, at the beginning and the end of a run; between the two the chart is only extended. */
    drawAll() {
      this.colours = readColours(this.host);
      const styles = lineStyles(this.lanes, this.colours);
      const lines = this.series.map((series, i) => ({
        type: "scatter", mode: "lines", name: literal(this.lanes[i].title), x: series.x.slice(), y: series.y.slice(),
        line: styles[i], hovertemplate: "%{y:.0f} tok/s",
      }));
      const heads = this.series.map((series, i) => ({
        type: "scatter", mode: "markers", x: series.x.slice(-1), y: series.y.slice(-1), hoverinfo: "skip",
        cliponaxis: false, marker: { size: 7, color: styles[i].color },
      }));
      const layout = makeLayout(this.colours, this.ranges);
      layout.xaxis.showticklabels = layout.yaxis.showticklabels = lines.length > 0;
      window.Plotly.react(this.host, lines.concat(heads), layout, OPTIONS);
      this.plotted = true;
      this.stale = false;
    }

    /** Adds the new points to the lines, and moves the dots at their ends. */
    extend(grown) {
      const count = this.series.length;
      const grew = this.series.map((series, i) => i).filter((i) => this.series[i].drawn < this.series[i].x.length);
      if (grown) {
        window.Plotly.relayout(this.host, { "xaxis.range": [0, this.ranges.x], "yaxis.range": [0, this.ranges.y] });
      }
      if (!grew.length) return;
      const fresh = (key) => grew.map((i) => this.series[i][key].slice(this.series[i].drawn))
        .concat(grew.map((i) => this.series[i][key].slice(-1)));
      const most = grew.map(() => 1e6).concat(grew.map(() => 1));
      window.Plotly.extendTraces(this.host, { x: fresh("x"), y: fresh("y") },
        grew.concat(grew.map((i) => count + i)), { x: most, y: most });
    }

    resized(width) {
      const before = this.width;
      this.width = width;
      if (!width || width === before) return;
      if (this.plotted) requestAnimationFrame(() => this.plotted && window.Plotly.Plots.resize(this.host));
      else this.schedule();
    }

    /** Draws the same points in the colours of a new theme. */
    recolour() {
      if (!this.plotted || readColours(this.host).ink === this.colours.ink) return;
      this.stale = true;
      this.schedule(true);
    }
  }

  window.SpecDemoChart = {
    create: (host) => new Chart(host), readColours, onTheme, axis, baseLayout, literal, LATE, OPTIONS,
  };
})();
