/*
 * The timeline of a race that is over: where every lane's time went, round by round.
 *
 * A plain script that defines `window.SpecDemoTimeline`; it is loaded after race-chart.js, whose colours and axes
 * it shares, and waits for Plotly, which a slow connection brings after a short run has ended.
 */
(function () {
  "use strict";

  /** Rounds of a lane that are drawn: each is up to three bars, and thousands of bars make the page heavy. */
  const MOST_ROUNDS = 300;
  const ROW_HEIGHT = 44;
  const AXIS_HEIGHT = 34;
  const MARGIN = 104;
  /** Of a letter of a lane's title, about. */
  const TITLE_WIDTH = 6.6;
  const PHASES = [
    { key: "draft", name: "draft", colour: (c) => c.lanes[2], opacity: 0.85 },
    { key: "verify", name: "target forward", colour: (c) => c.lanes[0], opacity: 0.85 },
    { key: "other", name: "other", colour: (c) => c.plain, opacity: 0.6 },
  ];
  const EMPTY = { draft: 0, verify: 0, other: 0 };

  const describe = (round) => (round.index === 0 ? "prefill" : "round " + round.index);

  /** What the round's tokens were, with rejected ones in brackets. */
  function quote(tokens) {
    const texts = tokens.map((token) => (token.kind === "rejected" ? `[${token.text}]` : token.text || ""));
    return window.SpecDemoChart.literal(texts.join("").replace(/\s+/g, " ").slice(0, 90));
  }

  class Timeline {
    constructor(host) {
      this.host = host;
      this.drawn = false;
      this.timer = 0;
      this.themes = new MutationObserver(() => this.drawn && this.draw());
      for (const element of [document.documentElement, document.body]) {
        this.themes.observe(element, { attributes: true, attributeFilter: ["class"] });
      }
      this.sizes = new ResizeObserver(() => this.drawn && window.Plotly.Plots.resize(this.host));
      this.sizes.observe(host);
      this.begin([]);
    }

    /** Forgets the last run. @param {{title: string}[]} lanes */
    begin(lanes) {
      this.lanes = lanes;
      this.rounds = lanes.map(() => []);
      this.clear();
    }

    clear() {
      clearTimeout(this.timer);
      if (this.drawn) window.Plotly.purge(this.host);
      this.drawn = false;
    }

    /** Notes a round; nothing is drawn before the end. */
    add(lane, round) {
      if (this.rounds[lane].length < MOST_ROUNDS) this.rounds[lane].push(round);
    }

    /** Whether it is known where the time of a lane's rounds went; a server does not say. */
    known(lane) {
      return this.rounds[lane].some((round) => round.draft_seconds !== undefined);
    }

    /** Draws what was noted, as soon as that can be done; true if there is anything to see. */
    draw() {
      if (!this.lanes.some((_, lane) => this.known(lane))) return false;
      this.host.style.height = `${ROW_HEIGHT * this.lanes.length + AXIS_HEIGHT}px`;
      if (window.Plotly) this.plot();
      else this.timer = setTimeout(() => this.draw(), window.SpecDemoChart.LATE);
      return true;
    }

    plot() {
      const colours = window.SpecDemoChart.readColours(this.host);
      window.Plotly.react(this.host, PHASES.map((phase) => this.bars(phase, colours)), this.layout(colours),
        { displayModeBar: false, responsive: false, scrollZoom: false });
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
        const spent = this.phases(round);
        if (!spent[phase.key]) return;
        const before = PHASES.slice(0, PHASES.indexOf(phase)).reduce((sum, p) => sum + spent[p.key], 0);
        trace.x.push(spent[phase.key]);
        trace.base.push(round.seconds - spent.draft - spent.verify - spent.other + before);
        trace.y.push(lane);
        trace.customdata.push([describe(round), (1000 * spent[phase.key]).toFixed(1), quote(round.tokens)]);
      }));
      return trace;
    }

    phases(round) {
      return round.draft_seconds === undefined ? EMPTY
        : { draft: round.draft_seconds, verify: round.verify_seconds, other: round.other_seconds };
    }

    /** Room for the lanes' titles, but never more than a third of the width. */
    margin() {
      const longest = Math.max(...this.lanes.map((lane) => lane.title.length));
      return Math.max(MARGIN, Math.min(TITLE_WIDTH * longest + 12, this.host.clientWidth / 3));
    }

    shortened(title) {
      const most = Math.floor((this.margin() - 12) / TITLE_WIDTH);
      return title.length > most ? title.slice(0, most - 1) + "…" : title;
    }

    layout(colours) {
      const { axis, literal } = window.SpecDemoChart;
      return {
        barmode: "overlay", bargap: 0.3, showlegend: false, autosize: true, dragmode: "pan",
        margin: { l: this.margin(), r: 18, t: 2, b: 26 },
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: "system-ui, sans-serif", size: 12, color: colours.ink },
        annotations: this.lanes.flatMap((_, lane) => (this.known(lane) || !this.rounds[lane].length ? [] : [{
          x: 0, y: lane, xanchor: "left", showarrow: false, text: "the server does not say",
          font: { size: 12, color: colours.dim },
        }])),
        hoverlabel: { bgcolor: colours.card, bordercolor: colours.line, font: { color: colours.ink, size: 12 }, align: "left" },
        xaxis: axis(colours, { ticksuffix: " s", showgrid: false, nticks: 8, rangemode: "tozero", fixedrange: false }),
        yaxis: axis(colours, {
          tickvals: this.lanes.map((_, i) => i), ticktext: this.lanes.map((lane) => literal(this.shortened(lane.title))),
          range: [this.lanes.length - 0.45, -0.55], showgrid: false, zeroline: false,
        }),
      };
    }

    destroy() {
      this.themes.disconnect();
      this.sizes.disconnect();
      this.clear();
    }
  }

  window.SpecDemoTimeline = { create: (host) => new Timeline(host), phases: PHASES.map((phase) => phase.name) };
})();
