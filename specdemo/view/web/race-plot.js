/*
 * What the chart and the timeline of the race view share: colours, axes and Plotly's options.
 *
 * A plain script that defines `window.SpecDemoPlot`; it is loaded after dom.js. Plotly may arrive later than all else.
 */
(function () {
  "use strict";

  /** Milliseconds after which to look again whether Plotly has arrived. */
  const LATE = 200;
  const OPTIONS = { displayModeBar: false, responsive: false };

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

  window.SpecDemoPlot = { LATE, OPTIONS, readColours, onTheme, axis, baseLayout, literal };
})();
