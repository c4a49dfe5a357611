/*
 * The charts of the race view: tokens by lane and on the lane's own clock; and, once a run is over, where every lane's
 * time went. Every chart of the page can be saved as an image.
 * Plotly may arrive later than all else, after a short run has ended.
 */

const { cardHead, make, setText, sum } = window.SpecDemoDom;

/** Milliseconds after which to look again whether Plotly has arrived. */
const LATE = 200;
const OPTIONS = { displayModeBar: false, responsive: false };
/** Colours of lanes: of those that draft nothing, then of the others. */
const SERIES = ["plain", "hero", "accepted", "corrected", "bonus"];

/** A text as Plotly shows it unchanged: Plotly reads tags, links among them. */
const literal = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");

/**
 * The colours of the view in its present theme. They are read from an element that has them: what the property
 * itself holds is still the choice between light and dark.
 */
function readColours(host) {
  const probe = make("i", "", host);
  const names = ["ink", "dim", "grid", "card", "line", ...SERIES];
  const colours = Object.fromEntries(names.map((name) => {
    probe.style.color = `var(--race-${name})`;
    return [name, getComputedStyle(probe).color];
  }));
  probe.remove();
  return colours;
}

function axis(colours, extra) {
  return {
    gridcolor: colours.grid, linecolor: colours.line, zerolinecolor: colours.line, tickcolor: colours.line,
    tickfont: { color: colours.dim, size: 11.5 }, fixedrange: true, zeroline: true, automargin: false, ...extra,
  };
}

function baseLayout(colours) {
  return {
    autosize: true, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: true,
    legend: {
      orientation: "h", x: 1, xanchor: "right", y: 1, yanchor: "bottom", traceorder: "normal", itemclick: false,
      itemdoubleclick: false, font: { color: colours.dim },
    },
    font: { family: "system-ui, sans-serif", size: 12, color: colours.ink },
    hoverlabel: { bgcolor: colours.card, bordercolor: colours.line, font: { color: colours.ink, size: 12 }, align: "left" },
  };
}

/** Gives an element the colour of a line; see race.css. */
const tint = (element, colour) => element.style.setProperty("--race-series", `var(--race-${colour})`);

/** A card with a chart: its heading, and the button that saves it. */
class Plot {
  /** @param {string} className of the element that Plotly draws in  @param {string} role of it */
  constructor(parent, className, role) {
    this.card = make("section", "race-card", parent);
    const [head, title] = cardHead(this.card);
    this.title = title;
    make("button", "chart-png", head, "PNG", { type: "button", title: "Save this chart as an image" });
    this.host = make("div", className, make("div", "race-plot", this.card), null, { "data-role": role });
    this.lanes = [];
    this.width = this.timer = 0;
    this.drawn = this.stale = false;
    new ResizeObserver((entries) => this.resized(entries[0].contentRect.width)).observe(this.host);
    const themes = new MutationObserver(() => this.drawn && this.schedule());
    for (const element of [document.documentElement, document.body]) {
      themes.observe(element, { attributes: true, attributeFilter: ["class"] });
    }
  }

  /** Draws after some milliseconds, or as soon as Plotly is there and the chart has a width. */
  schedule(wait = 0) {
    this.stale = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.draw(), wait);
  }

  draw() {
    this.timer = 0;
    if (!window.Plotly) this.schedule(LATE);
    if (!window.Plotly || !this.width || this.ready === false) return; // `resized` comes back here
    const colours = readColours(this.host);
    window.Plotly.react(this.host, this.traces(colours), this.layout(colours), OPTIONS);
    [this.drawn, this.stale] = [true, false];
  }

  resized(width) {
    const before = this.width;
    this.width = width;
    if (!width || width === before) return;
    if (this.stale || !this.drawn) this.schedule();
    else requestAnimationFrame(() => window.Plotly.Plots.resize(this.host));
  }
}

// ---- tokens by time ------------------------------------------------------------------------------------------

/** Milliseconds between two redraws: Plotly takes tens of milliseconds, and the text must go on without jerks. */
const PAUSE = 400;

/** The line of one lane: its clock, and its tokens until then. A server's pieces of text are not counted. */
function lineOf(rounds) {
  if (rounds.some((round) => round.pieces)) return { x: [], y: [] };
  let output = 0;
  return { x: rounds.map(({ seconds }) => seconds), y: rounds.map(({ kept }) => (output += kept)) };
}

/** The next 1, 1.5, 2, 3, 4, 6 or 8 times a power of ten: axes that grow in steps instead of trembling. */
function roundUp(value) {
  if (!value) return 0;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.5, 2, 3, 4, 6, 8, 10].find((step) => step * power >= value * 0.9999);
}

/** Draws what the lanes hold, while they run a few times a second. */
class TokenChart extends Plot {
  constructor(parent) {
    super(parent, "race-chart", "chart");
    setText(this.title, "Tokens by time");
  }

  /** Draws what the lanes hold now; where the run is over without delay, on axes that fit all of it. */
  grow(over) {
    this.over = over;
    if (over) this.schedule();
    else if (!this.timer) this.schedule(this.drawn ? PAUSE : 0);
  }

  traces(colours) {
    this.points = this.lanes.map(({ rounds }) => lineOf(rounds));
    const colourOf = (i) => colours[SERIES[this.lanes[i].series]];
    const lines = this.points.map((line, i) => ({
      type: "scatter", mode: "lines", name: literal(this.lanes[i].spec.title), ...line, hovertemplate: "%{y:.0f} tokens",
      line: { color: colourOf(i), ...(this.lanes[i].series ? { dash: "solid", width: 2.5 } : { dash: "5px,4px", width: 2 }) },
    }));
    const heads = this.points.map(({ x, y }, i) => ({
      type: "scatter", mode: "markers", x: x.slice(-1), y: y.slice(-1), hoverinfo: "skip", cliponaxis: false,
      showlegend: false, marker: { size: 7, color: colourOf(i) },
    }));
    return lines.concat(heads);
  }

  /** Of the points of `traces`. The axes end with a run that is over, and have room to grow before. */
  layout(colours) {
    const [x, y] = ["x", "y"].map((name) => Math.max(0, ...this.points.flatMap((line) => line[name])));
    const ends = this.over && x ? [x * 1.02, Math.max(1, y * 1.08)] : [Math.max(1, roundUp(x * 1.05)), Math.max(20, roundUp(y * 1.08))];
    const showticklabels = this.lanes.length > 0;
    return {
      ...baseLayout(colours), margin: { l: 44, r: 18, t: 24, b: 26 }, hovermode: "x unified", dragmode: false,
      xaxis: axis(colours, {
        range: [0, ends[0]], ticksuffix: " s", showgrid: false, hoverformat: ".2f", showspikes: false, showticklabels,
      }),
      yaxis: axis(colours, { range: [0, ends[1]], nticks: 5, showticklabels }),
    };
  }
}

// ---- where the time went -------------------------------------------------------------------------------------

/** Stretches of a lane: each is up to three bars, and thousands of bars make the page slow. */
const MOST_STRETCHES = 60;
const ROW_HEIGHT = 44;
/** A chart as narrow as on a phone has the lanes' titles above their bars, not beside them, in rows higher by so much. */
const NARROW = 480;
const TITLE_HEIGHT = 14;
const AXIS_HEIGHT = 54;
/** Letters of a lane's title. */
const LONGEST = 24;
const PHASES = [
  { key: "draft_seconds", name: "draft", colour: "corrected", opacity: 0.85 },
  { key: "verify_seconds", name: "target forward", colour: "hero", opacity: 0.85 },
  { key: "other_seconds", name: "other", colour: "plain", opacity: 0.6 },
];

/** How many consecutive rounds are drawn as one stretch, so that there are few enough. */
const sizeOf = (rounds) => Math.ceil(rounds.length / MOST_STRETCHES) || 1;

function stretches(rounds) {
  const size = sizeOf(rounds);
  return Array.from({ length: Math.ceil(rounds.length / size) }, (_, i) => rounds.slice(i * size, (i + 1) * size));
}

function describe(rounds) {
  const [first, last] = [rounds[0].index, rounds.at(-1).index];
  const by = [...new Set(rounds.map(({ drafter }) => drafter).filter(Boolean))].map((name) => `, by ${name}`).join("");
  if (first !== last) return `${first ? `rounds ${first}` : "prefill"} to ${first ? "" : "round "}${last}${by}`;
  return first ? `round ${first}${by}` : "prefill";
}

/** The text of one round, with rejected tokens in brackets; of several the counts. */
function quote(rounds) {
  if (rounds.length > 1) {
    const drafted = sum(rounds, "drafted");
    return `${sum(rounds, "kept")} tokens` + (drafted ? `, ${drafted} drafted` : "");
  }
  const read = rounds[0].tokens.filter((token) => !token.branch);
  const texts = read.map((token) => (token.kind === "rejected" ? `[${token.text}]` : token.text || ""));
  return literal(texts.join("").replace(/\s+/g, " ").slice(0, 90));
}

/** Every lane's time, round by round, or by stretches of rounds. A server does not report it. */
class Timeline extends Plot {
  constructor(parent) {
    super(parent, "race-timeline", "timeline");
  }

  known({ rounds }) {
    return rounds.some((round) => round.draft_seconds !== undefined);
  }

  get narrow() {
    return this.width < NARROW;
  }

  get ready() {
    return this.lanes.some(this.known);
  }

  /** Draws the rounds of lanes that have ended; true if there is anything to see. */
  finish(lanes) {
    this.lanes = lanes;
    const size = Math.max(1, ...lanes.map(({ rounds }) => sizeOf(rounds)));
    setText(this.title, "Where the time went" + (size > 1 ? `, ${size} rounds at a time` : ""));
    this.schedule();
    return this.ready;
  }

  /** Points beside the rounds that one of several drafters in a row copied; of a stretch, where most were. */
  copies(colours) {
    const points = this.lanes.flatMap(({ rounds }, lane) => stretches(rounds)
      .filter((some) => 2 * some.filter(({ copied }) => copied).length > some.length)
      .map((some) => [some.at(-1).seconds - PHASES.reduce((total, { key }) => total + sum(some, key), 0) / 2, lane + (this.narrow ? 0.34 : -0.36)]));
    return {
      type: "scatter", mode: "markers", name: "copied", x: points.map(([x]) => x), y: points.map(([, y]) => y),
      marker: { symbol: this.narrow ? "triangle-up" : "triangle-down", size: 6, color: colours.ink }, hoverinfo: "skip", cliponaxis: false,
      showlegend: points.length > 0,
    };
  }

  traces(colours) {
    const bars = PHASES.map((phase, number) => {
      const trace = {
        type: "bar", orientation: "h", name: phase.name, x: [], base: [], y: [], customdata: [], width: 0.55,
        marker: { color: colours[phase.colour], opacity: phase.opacity, line: { width: 0 } },
        hovertemplate: "%{customdata[0]}, " + phase.name + ": %{customdata[1]} ms<br>%{customdata[2]}<extra></extra>",
      };
      this.lanes.forEach(({ rounds }, lane) => stretches(rounds).forEach((some) => {
        const seconds = sum(some, phase.key);
        if (!seconds) return;
        // The phases of a stretch follow one another, and the last one ends with it.
        const rest = PHASES.slice(number).reduce((total, { key }) => total + sum(some, key), 0);
        trace.x.push(seconds);
        trace.base.push(some.at(-1).seconds - rest);
        trace.y.push(lane);
        trace.customdata.push([describe(some), (1000 * seconds).toFixed(1), quote(some)]);
      }));
      return trace;
    });
    return [...bars, this.copies(colours)];
  }

  layout(colours) {
    this.host.style.height = `${(ROW_HEIGHT + TITLE_HEIGHT * this.narrow) * this.lanes.length + AXIS_HEIGHT}px`;
    const note = (text, y, yanchor) => ({ x: 0, y, xanchor: "left", yanchor, showarrow: false, text, font: { color: colours.dim } });
    const titles = this.lanes.map(({ spec: { title } }) => literal(title.length > LONGEST ? title.slice(0, LONGEST - 1) + "…" : title));
    return {
      ...baseLayout(colours),
      barmode: "overlay", bargap: 0.3, dragmode: "pan", margin: { l: 12, r: 18, t: 22, b: 26 },
      annotations: this.lanes.flatMap((lane, i) => [
        ...(this.known(lane) || !lane.rounds.length ? [] : [note("the server does not say", i, "middle")]),
        ...(this.narrow ? [note(titles[i], i - 0.29, "bottom")] : []),
      ]),
      xaxis: axis(colours, { ticksuffix: " s", showgrid: false, rangemode: "tozero", fixedrange: false }),
      yaxis: axis(colours, {
        tickvals: titles.map((_, i) => i), ticktext: titles, automargin: true,
        range: [titles.length - 0.45, this.narrow ? -0.7 : -0.55], showgrid: false, zeroline: false,
        showticklabels: !this.narrow, ticks: this.narrow ? "" : "outside",
      }),
    };
  }
}

// ---- images --------------------------------------------------------------------------------------------------

const SCALE = 2;
/** Pixels of height for the title and the legend, and the width that a title needs at least. */
const HEAD = 64;
const LEAST_WIDTH = 640;

/** A figure for use outside the page: with a title and a background. */
function standalone({ data, layout }, title) {
  const { color: ink, backgroundColor: ground } = getComputedStyle(document.body);
  return {
    data,
    layout: {
      ...layout, width: undefined, height: undefined, paper_bgcolor: ground, plot_bgcolor: ground,
      margin: { ...layout.margin, t: (layout.margin?.t || 0) + HEAD },
      font: { ...layout.font, color: ink },
      title: { text: literal(title), x: 0, xref: "paper", xanchor: "left", y: 1, yref: "container", yanchor: "top",
        pad: { t: 14 }, font: { size: 15, color: ink, weight: 600 } },
    },
  };
}

// Buttons are found by their class, so they work in markup from the server as well.
document.addEventListener("click", (event) => {
  const card = event.target.closest(".chart-png")?.closest(".race-card, .measured-figure");
  const plot = card?.querySelector(".js-plotly-plot");
  if (!plot?.data?.length) return;
  const title = card.querySelector("h3").textContent;
  const name = title.toLowerCase().replace(/γ/g, "gamma").replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "");
  window.Plotly.downloadImage(standalone(plot, title), {
    format: "png", scale: SCALE, width: Math.max(plot.clientWidth, LEAST_WIDTH), height: plot.clientHeight + HEAD,
    filename: `specdemo-${name}`,
  });
});

window.SpecDemoCharts = { SERIES, TokenChart, Timeline, tint };
