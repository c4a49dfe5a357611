/*
 * PNG images of charts, in the looks of the page.
 *
 * A plain script that defines `window.SpecDemoPng`; it needs Plotly by the time somebody asks for an image. A button
 * is found by its class, so that it works in markup that a server made as well as in the race view.
 */
(function () {
  "use strict";

  const SCALE = 2;
  /** Pixels for the title and the lines' names, and the least width that a title needs. */
  const HEAD = 64;
  const LEAST_WIDTH = 640;
  const FONT = "system-ui, -apple-system, Segoe UI, Roboto, sans-serif";

  /** The first ground above an element that one cannot see through. */
  function groundOf(element) {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!/^(transparent|rgba\(.*, 0\))$/.test(colour)) return colour;
    }
    return "#ffffff";
  }

  /** The figure as it stands alone: with a title, names for its lines, and a ground. */
  function standing(plot, title) {
    const ink = getComputedStyle(plot).color;
    const ground = groundOf(plot);
    const { layout } = plot;
    const margin = { ...layout.margin, t: (layout.margin?.t || 0) + HEAD };
    const axes = Object.fromEntries(Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name))
      .map((name) => [name, { ...layout[name], color: ink, tickfont: { ...layout[name].tickfont, color: ink } }]));
    return {
      data: plot.data.map((trace) => (trace.name ? trace : { ...trace, showlegend: false })),
      layout: {
        ...layout, ...axes, margin, width: undefined, height: undefined, paper_bgcolor: ground, plot_bgcolor: ground,
        font: { ...layout.font, color: ink },
        title: { text: window.SpecDemoChart.literal(title), x: 0, xref: "paper", xanchor: "left", y: 1, yref: "container", yanchor: "top",
          pad: { t: 14 }, font: { family: FONT, size: 15, color: ink, weight: 600 } },
        showlegend: true,
        legend: { orientation: "h", x: 0, xanchor: "left", y: 1, yanchor: "bottom", font: { color: ink } },
      },
    };
  }

  /** Downloads `plot` as it stands. @param {HTMLElement} plot what Plotly drew in */
  function save(plot, title) {
    const width = Math.max(plot.clientWidth, LEAST_WIDTH);
    const name = title.toLowerCase().replace(/γ/g, "gamma").replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "");
    return window.Plotly.downloadImage(standing(plot, title),
      { format: "png", scale: SCALE, width, height: plot.clientHeight + HEAD, filename: `specdemo-${name}` });
  }

  /** The heading and the drawing of the card that a button stands in; null while there is nothing to see. */
  function chartOf(button) {
    const card = button.closest(".race-card, .measured-figure");
    const plot = card && card.querySelector(".js-plotly-plot");
    return plot && plot.data && plot.data.length ? { plot, title: card.querySelector("h3").textContent } : null;
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest(".chart-png");
    const chart = button && chartOf(button);
    if (chart) save(chart.plot, chart.title);
  });

  /** A button for the head of a chart's card. */
  function button() {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", className: "chart-png", textContent: "PNG", title: "Save this chart as an image" });
    return made;
  }

  window.SpecDemoPng = { button, save };
})();
