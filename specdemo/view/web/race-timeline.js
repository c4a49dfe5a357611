/*
 * The timeline of a race that is over: where every lane's time went, round by round, or by stretches of rounds.
 *
 * A plain script that defines `window.SpecDemoTimeline`; it is loaded after race-plot.js. It waits for Plotly, which
 * may arrive over a slow connection after a short run has ended.
 */
(function () {
  "use strict";

  /** Stretches of a lane: each is up to three bars, and thousands of bars make the page slow. */
  const MOST = 60;
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

  const { OPTIONS, LATE, axis, baseLayout, literal, onTheme, readColours } = window.SpecDemoPlot;

  const secondsOf = (rounds, phase) => rounds.reduce((sum, round) => sum + round[`${phase.key}_seconds`], 0);

  /** How many consecutive rounds are drawn as one stretch, so that there are few enough. */
  const sizeOf = (rounds) => Math.ceil(rounds.length / MOST) || 1;

  function stretches(rounds) {
    const size = sizeOf(rounds);
    return Array.from({ length: Math.ceil(rounds.length / size) }, (_, i) => rounds.slice(i * size, (i + 1) * size));
  }

  function describe(rounds) {
    const [first, last] = [rounds[0].index, rounds.at(-1).index];
    if (first !== last) return `${first ? `rounds ${first}` : "prefill"} to ${first ? "" : "round "}${last}`;
    return first ? `round ${first}` : "prefill";
  }

  /** The text of one round, with rejected tokens in brackets; of several the counts. */
  function quote(rounds) {
    if (rounds.length > 1) {
      const drafted = rounds.reduce((sum, round) => sum + round.drafted, 0);
      const kept = rounds.reduce((sum, round) => sum + round.kept, 0);
      return `${kept} tokens` + (drafted ? `, ${drafted} drafted` : "");
    }
    const { isBranch } = window.SpecDemoTokens; // loaded later
    const read = rounds[0].tokens.filter((token) => !isBranch(token, rounds[0]));
    const texts = read.map((token) => (token.kind === "rejected" ? `[${token.text}]` : token.text || ""));
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

    /** Forgets the last run. @param {{spec: LaneSpec, rounds: Round[]}[]} lanes */
    begin(lanes) {
      this.lanes = lanes;
      clearTimeout(this.timer);
      this.drawn = false; // what was drawn stays, hidden, until the next run is drawn: removing it takes long
    }

    /** Whether the durations of a lane's phases are known; a server does not report them. */
    known({ rounds }) {
      return rounds.some((round) => round.draft_seconds !== undefined);
    }

    /** Draws the lanes' rounds as soon as Plotly is there; true if there is anything to see. */
    draw() {
      if (!this.lanes.some(this.known)) return false;
      this.host.style.height = `${ROW_HEIGHT * this.lanes.length + AXIS_HEIGHT}px`;
      // The chart is drawn at the same moment: the page may answer between the two.
      this.timer = setTimeout(() => (window.Plotly ? this.plot() : this.draw()), window.Plotly ? 0 : LATE);
      return true;
    }

    plot() {
      const colours = readColours(this.host);
      window.Plotly.react(this.host, PHASES.map((phase) => this.bars(phase, colours)), this.layout(colours), OPTIONS);
      this.drawn = true;
    }

    /** Rounds in each stretch of the lane with the most. */
    get size() {
      return Math.max(1, ...this.lanes.map(({ rounds }) => sizeOf(rounds)));
    }

    bars(phase, colours) {
      const trace = {
        type: "bar", orientation: "h", name: phase.name, x: [], base: [], y: [], customdata: [], width: 0.55,
        marker: { color: phase.colour(colours), opacity: phase.opacity, line: { width: 0 } },
        hovertemplate: "%{customdata[0]}, " + phase.name + ": %{customdata[1]} ms<br>%{customdata[2]}<extra></extra>",
      };
      this.lanes.forEach(({ rounds }, lane) => stretches(rounds).forEach((some) => {
        const seconds = secondsOf(some, phase);
        if (!seconds) return;
        // The phases of a stretch follow one another, and the last one ends with it.
        const rest = PHASES.slice(PHASES.indexOf(phase)).reduce((sum, p) => sum + secondsOf(some, p), 0);
        trace.x.push(seconds);
        trace.base.push(some.at(-1).seconds - rest);
        trace.y.push(lane);
        trace.customdata.push([describe(some), (1000 * seconds).toFixed(1), quote(some)]);
      }));
      return trace;
    }

    /** The width for the lanes' titles, at most a third of the whole. */
    margin() {
      const longest = Math.max(...this.lanes.map(({ spec }) => spec.title.length));
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
        annotations: this.lanes.flatMap((lane, i) => (this.known(lane) || !lane.rounds.length ? [] : [{
          x: 0, y: i, xanchor: "left", showarrow: false, text: "the server does not say",
          font: { size: 12, color: colours.dim },
        }])),
        xaxis: axis(colours, { ticksuffix: " s", showgrid: false, nticks: 8, rangemode: "tozero", fixedrange: false }),
        yaxis: axis(colours, {
          tickvals: this.lanes.map((_, i) => i), ticktext: this.lanes.map(({ spec }) => literal(this.shortened(spec.title))),
          range: [this.lanes.length - 0.45, -0.55], showgrid: false, zeroline: false,
        }),
      };
    }
  }

  window.SpecDemoTimeline = { create: (host) => new Timeline(host), phases: PHASES.map((phase) => phase.name) };
})();
