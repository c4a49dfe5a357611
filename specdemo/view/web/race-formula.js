/*
 * The formulas of figures, in a tooltip like that of tokens: by the pointer, by touch, and by the keyboard.
 *
 * A plain script that listens to the whole page. A view gives a figure its formula as `title`, which browsers show to
 * a mouse only; what is pointed at, touched or reached by keys has it moved to `data-formula` and shown here. Tab
 * stops once at the figures of a lane, of a table or of the head, and the arrow keys go from one to the next.
 */
(function () {
  "use strict";

  const { ARROWS, make, modified } = window.SpecDemoDom;
  const FIGURES = ".specdemo-race :is([title], [data-formula]):not(button, select, q)";
  const ID = "race-formula";

  let shown = null;

  const figureAt = (target) => target.closest?.(FIGURES) || null;

  function hide() {
    document.getElementById(ID)?.remove();
    shown?.removeAttribute("aria-describedby");
    shown = null;
  }

  /** Shows the formula below its figure, within the view. */
  function show(figure) {
    if (figure === shown) return;
    hide();
    if (!figure) return;
    if (figure.title) {
      figure.dataset.formula = figure.title;
      figure.removeAttribute("title");
    }
    const frame = figure.closest(".specdemo-race");
    const tip = make("div", "race-tip race-formula", frame, figure.dataset.formula, { id: ID, role: "tooltip" });
    const within = frame.getBoundingClientRect();
    const place = figure.getBoundingClientRect();
    const left = Math.min(place.left - within.left, within.width - tip.offsetWidth);
    tip.style.translate = `${Math.max(0, left)}px ${place.bottom - within.top + 6}px`;
    figure.setAttribute("aria-describedby", ID);
    shown = figure;
  }

  const groupOf = (figure) => figure.closest("section, table, .specdemo-race");
  const figuresOf = (group) => [...group.querySelectorAll(FIGURES)].filter((figure) => groupOf(figure) === group);

  /** Makes a figure the one of its group at which Tab stops. */
  function makeStop(figure) {
    for (const each of figuresOf(groupOf(figure))) each.tabIndex = each === figure ? 0 : -1;
  }

  /** Goes on from a figure, as far as its group has more. @param {number} by */
  function go(figure, by) {
    const all = figuresOf(groupOf(figure));
    const next = all[all.indexOf(figure) + by] || figure;
    makeStop(next);
    next.focus();
  }

  document.addEventListener("pointerover", (event) => { if (event.pointerType !== "touch") show(figureAt(event.target)); });
  document.addEventListener("focusin", (event) => show(figureAt(event.target)));
  document.addEventListener("focusout", hide);
  document.addEventListener("click", (event) => show(figureAt(event.target)));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const by = ARROWS[event.key];
    if (by && event.target.matches?.(FIGURES) && !modified(event)) {
      go(event.target, by);
      event.preventDefault(); // the player has the arrows elsewhere
    }
    // Figures are made anew for each run, so they become stops of the keyboard when it is used.
    if (event.key !== "Tab") return;
    for (const figure of document.querySelectorAll(FIGURES)) if (!figure.hasAttribute("tabindex")) makeStop(figure);
  }, true);
})();
