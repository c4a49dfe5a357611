/*
 * Run and Stop for the keyboard: they take turns in being enabled, and whoever has the one gets the other.
 *
 * A plain script that defines nothing. A disabled button loses the focus, and the next key would go to no element.
 */
(function () {
  "use strict";

  const ROW = "#run-row";
  /** The button of the row that has the focus, or lost it only by being disabled. */
  let held = null;

  document.addEventListener("focusin", ({ target }) => { held = target.closest(`${ROW} button`); });
  document.addEventListener("focusout", ({ target }) => { if (!target.disabled) held = null; });

  new MutationObserver(() => {
    if (!held?.disabled) return;
    const free = [...document.querySelectorAll(`${ROW} button:enabled`)].find((button) => button.getClientRects().length);
    free?.focus({ preventScroll: true });
  }).observe(document, { subtree: true, attributes: true, attributeFilter: ["disabled"] });

  // Enter that is held down presses again and again: Run, and then the Stop that took over.
  document.addEventListener("keydown", (event) => {
    if (event.repeat && event.key === "Enter" && event.target.closest?.(ROW)) event.preventDefault();
  }, true);
})();
