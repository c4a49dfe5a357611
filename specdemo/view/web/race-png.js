/*
 * Saves charts as PNG images, in the colours of the page.
 *
 * A plain script that defines `window.SpecDemoPng`; it is loaded after race-plot.js. Buttons are found by their
 * class, so they work in markup from the server as well as in the race view.
 */
(function () {
  "use strict";

  const SCALE = 2;
  /** Pixels of height for the title and the legend, and the width that a title needs at least. */
  const HEAD = 64;
  const LEAST_WIDTH = 640;
  const FONT = "system-ui, -apple-system, Segoe UI, Roboto, sans-serif";

  /** The colour of the nearest background that is not transparent. */
  function backgroundOf(element) {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!/^(transparent|rgba\(.*, 0\))$/.test(colour)) return colour;
    }
    return "#ffffff";
  }

  /** The figure for use outside the page: with a title, a legend and a background. */
  function standalone(plot, title) {
    const ink = getComputedStyle(plot).color;
    const ground = backgroundOf(plot);
    const { layout } = plot;
    const margin = { ...layout.margin, t: (layout.margin?.t || 0) + HEAD };
    const axes = Object.fromEntries(Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name))
      .map((name) => [name, { ...layout[name], color: ink, tickfont: { ...layout[name].tickfont, color: ink } }]));
    return {
      data: plot.data.map((trace) => (trace.name ? trace : { ...trace, showlegend: false })),
      layout: {
        ...layout, ...axes, margin, width: undefined, height: undefined, paper_bgcolor: ground, plot_bgcolor: ground,
        font: { ...layout.font, color: ink },
        title: { text: window.SpecDemoPlot.literal(title), x: 0, xref: "paper", xanchor: "left", y: 1, yref: "container", yanchor: "top",
          pad: { t: 14 }, font: { family: FONT, size: 15, color: ink, weight: 600 } },
        showlegend: true,
        legend: { orientation: "h", x: 0, xanchor: "left", y: 1, yanchor: "bottom", font: { color: ink } },
      },
    };
  }

  /** @param {HTMLElement} plot the element that Plotly drew in */
  function save(plot, title) {
    const width = Math.max(plot.clientWidth, LEAST_WIDTH);
    const name = title.toLowerCase().replace(/γ/g, "gamma").replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "");
    return window.Plotly.downloadImage(standalone(plot, title),
      { format: "png", scale: SCALE, width, height: plot.clientHeight + HEAD, filename: `specdemo-${name}` });
  }

  document.addEventListener("click", (event) => {
    const card = event.target.closest(".chart-png")?.closest(".race-card, .measured-figure");
    const plot = card?.querySelector(".js-plotly-plot");
    if (plot?.data?.length) save(plot, card.querySelector("h3").textContent);
  });

  /** A button for the head of a chart's card. */
  const button = () => window.SpecDemoDom.make("button", "chart-png", null, "PNG", {
    type: "button", title: "Save this chart as an image",
  });

  window.SpecDemoPng = { button };
})();
