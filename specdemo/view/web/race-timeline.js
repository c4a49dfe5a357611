/*
 * The timeline of a race that is over: where every lane's time went, round by round.
 *
 * A plain script that defines `window.SpecDemoTimeline`; it is loaded after race-chart.js. It waits for Plotly, which
 * may arrive over a slow connection after a short run has ended.
 */
(function () {
  "use strict";

  /** Rounds of a lane that are drawn: each is up to three bars, and thousands of bars make the page slow. */
  const MOST_ROUNDS = 300;
  const ROW_HEIGHT = 44;
  const AXIS_HEIGHT = 34;
  const MARGIN = 104;
  /** Approximate width of a letter in a lane's title. */
  const TITLE_WIDTH = 6.6;
  const PHASES = [
    { key: "draft", name: "draft", colour: (c) => c.corrected, opacity: 0.85 },
    { key: "verify", name: "target forward", colour: (c) => c.hero, opacity: 0.85 },
    { key: "other", name: "other", colour: (c) => c.plain, opacity: 0.6 },
  ];

  const { OPTIONS, LATE, axis, baseLayout, literal, onTheme, readColours } = window.SpecDemoChart;

  const describe = (round) => (round.index === 0 ? "prefill" : "round " + round.index);

  /** What the round's tokens were, with rejected ones in brackets. */
  function quote(tokens) {
    const texts = tokens.map((token) => (token.kind === "rejected" ? `[${token.text}]` : token.text || ""));
    return literal(texts.join("").replace(/\s+/g, " ").slice(0, 90));
  }

  class Timeline {
    constructor(host) {
      this.host = host;
      this.drawn = false;
      this.timer = 0;
      onTheme(() => this.drawn && this.plot());
      new ResizeObserver(() => this.drawn && window.Plotly.Plots.resize(this.host)).observe(host);
      this.begin([]);
    }

    /** Forgets the last run. @param {{title: string}[]} lanes */
    begin(lanes) {
      this.lanes = lanes;
      this.rounds = lanes.map(() => []);
      clearTimeout(this.timer);
      if (this.drawn) window.Plotly.purge(this.host);
      this.drawn = false;
    }

    /** Stores a round; nothing is drawn before the end. */
    add(lane, round) {
      if (this.rounds[lane].length < MOST_ROUNDS) this.rounds[lane].push(round);
    }

    /** Whether the durations of a lane's phases are known; a server does not report them. */
    known(lane) {
      return this.rounds[lane].some((round) => round.draft_seconds !== undefined);
    }

    /** Draws the stored rounds as soon as Plotly is there; true if there is anything to see. */
    draw() {
      if (!this.lanes.some((_, lane) => this.known(lane))) return false;
      this.host.style.height = `${ROW_HEIGHT * this.lanes.length + AXIS_HEIGHT}px`;
      if (window.Plotly) this.plot();
      else this.timer = setTimeout(() => this.draw(), LATE);
      return true;
    }

    plot() {
      const colours = readColours(this.host);
      window.Plotly.react(this.host, PHASES.map((phase) => this.bars(phase, colours)), this.layout(colours), OPTIONS);
      this.drawn = true;
    }

    /** Whether rounds were left out. */
    get cut() {
      return this.rounds.some((rounds) => rounds.length === MOST_ROUNDS);
    }

    bars(phase, colours) {
      const trace = {
        type: "bar", orientation: "h", name: phase.name, x: [], base: [], y: [], customdata: [], width: 0.55,
        marker: { color: phase.colour(colours), opacity: phase.opacity, line: { width: 0 } },
        hovertemplate: "%{customdata[0]}, " + phase.name + ": %{customdata[1]} ms<br>%{customdata[2]}<extra></extra>",
      };
      this.rounds.forEach((rounds, lane) => rounds.forEach((round) => {
        const seconds = round[`${phase.key}_seconds`];
        if (!seconds) return;
        // The phases of a round follow one another, and the last one ends with the round.
        const rest = PHASES.slice(PHASES.indexOf(phase)).reduce((sum, p) => sum + round[`${p.key}_seconds`], 0);
        trace.x.push(seconds);
        trace.base.push(round.seconds - rest);
        trace.y.push(lane);
        trace.customdata.push([describe(round), (1000 * seconds).toFixed(1), quote(round.tokens)]);
      }));
      return trace;
    }

    /** The width for the lanes' titles, at most a third of the whole. */
    margin() {
      const longest = Math.max(...this.lanes.map((lane) => lane.title.length));
      return Math.max(MARGIN, Math.min(TITLE_WIDTH * longest + 12, this.host.clientWidth / 3));
    }

    shortened(title) {
      const most = Math.floor((this.margin() - 12) / TITLE_WIDTH);
      return title.length > most ? title.slice(0, most - 1) + "…" : title;
    }

    layout(colours) {
      return {
        ...baseLayout(colours),
        barmode: "overlay", bargap: 0.3, dragmode: "pan", margin: { l: this.margin(), r: 18, t: 2, b: 26 },
        annotations: this.lanes.flatMap((_, lane) => (this.known(lane) || !this.rounds[lane].length ? [] : [{
          x: 0, y: lane, xanchor: "left", showarrow: false, text: "the server does not say",
          font: { size: 12, color: colours.dim },
        }])),
        xaxis: axis(colours, { ticksuffix: " s", showgrid: false, nticks: 8, rangemode: "tozero", fixedrange: false }),
        yaxis: axis(colours, {
          tickvals: this.lanes.map((_, i) => i), ticktext: this.lanes.map((lane) => literal(this.shortened(lane.title))),
          range: [this.lanes.length - 0.45, -0.55], showgrid: false, zeroline: false,
        }),
      };
    }
  }

  window.SpecDemoTimeline = { create: (host) => new Timeline(host), phases: PHASES.map((phase) => phase.name) };
})();
