/* The panel: what of it the open tab does not use, on small screens the sheet with the settings, and the keyboard. */

const page = document.documentElement;
/** Where the panel stands above the stage; the same width as in page.css. */
const SMALL = matchMedia("(max-width: 860px)");
const TREE = '[id$="-tree-nodes"]';
/** What a tab does not use: elements of the panel, why, and in which state of the tab. */
const UNUSED = [
  ["sweep", ".lane-gamma", "This tab tries chains of every γ of its own range, and no trees."],
  ["sweep", ".lane-gamma", "This tab tries every method, with γ and trees of its own.", "#sweep-view input[value=methods]:checked"],
  ["sweep", "#prompt", "This tab has prompts of its own.", "#sweep-source input:not([value=panel]):checked"],
  ["batch", "#prompt", "The batch has prompts of its own.", "#batch-source input:not([value=panel]):checked"],
  ["batch", TREE, "A batch drafts chains of this γ."],
  ["losslessness", TREE, "The check drafts chains of this γ."],
  ["losslessness", '[id$="-adaptive"]', "The check keeps γ as it is."],
  ["losslessness", ".lane-how", "The check has a rule and a drafter of its own."],
  ["losslessness", "#temperature", "The check has a temperature of its own."],
  ["losslessness", "#max-tokens", "Sampled runs are as short as “Tokens a run” says.",
    "#losslessness-mode input[value=distribution]:checked"],
];
const DIMMED = [...new Set(UNUSED.map(([, elements]) => elements))].join(", ");

/** Dims what the open tab does not use; its reason stands above it, and the keyboard passes over it. */
function dim() {
  if (!window.SpecDemoLinks.wasRead()) return; // until then nothing of the panel can be used
  for (const element of document.querySelectorAll(`#panel :is(${DIMMED})`)) {
    const unused = UNUSED.findLast(([tab, elements, , state]) => tab === page.dataset.tab && element.matches(elements)
      && (!state || document.querySelector(state)));
    element.inert = Boolean(unused);
    window.SpecDemoDom.setData(element, "unused", unused?.[2]);
  }
}

for (const kind of ["change", "click"]) {
  document.addEventListener(kind, () => requestAnimationFrame(dim));
}

/** Updates of a lane's options: those that its method and acceptance rule read are shown. @returns {object[]} */
function options(method, acceptance, tree) {
  const { options: names, rules, methods } = window.SpecDemoLinkTable.lanes;
  const { reads, note } = methods[method] || { reads: [], note: "" };
  const shown = (name) => reads.includes(name) && (!rules[name] || rules[name].includes(acceptance));
  const isTree = shown("tree_nodes") && tree !== "0";
  const more = { gamma: { info: note || null, label: isTree ? "γ, depth of the draft tree" : "γ, tokens drafted per round" } };
  return names.map((name) => ({ __type__: "update", visible: shown(name), ...more[name] }));
}

/** Opens or closes the settings, which a small screen keeps in a sheet. */
function toggleSettings(open = page.dataset.settings !== "open") {
  page.dataset.settings = open ? "open" : "closed";
  document.getElementById("settings-toggle")?.setAttribute("aria-expanded", String(open));
}

/** A run has begun: where the panel stands above the stage, the stage comes into view. */
function showStage() {
  if (!SMALL.matches) return;
  toggleSettings(false);
  document.getElementById("stage")?.scrollIntoView({ behavior: "smooth", block: "start" });
}

/** The panel has taken over the settings of a recording, and says so for a moment; or what it could not take. */
function used(asked) {
  window.SpecDemoNotices.show(asked?.notices || []);
  const button = document.getElementById("use-settings");
  if (!button || !asked?.query) return;
  window.SpecDemoDom.confirm(button, "The panel has them now");
  dim();
}

document.addEventListener("click", (event) => { if (event.target.closest?.("#run-row .start")) showStage(); }, true);
page.dataset.settings = "closed";

// ---- keys ----------------------------------------------------------------------------------------------------

// Run and Stop take turns in being enabled, and whoever has the one gets the other: a disabled button loses the focus,
// and the next key would go to no element.
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

// Tab leaves a list. Gradio, which takes it for a key that opens the list, must not hear of it.
document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (key !== "Tab" || !target.matches?.("[role=combobox]")) return;
  event.stopImmediatePropagation();
  // The list is gone a moment later; it scrolls, so the browser would give it the focus and lose it with the list.
  for (const list of document.querySelectorAll(".options, .options > ul")) list.tabIndex = -1;
  target.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", code: "Escape", bubbles: true }));
}, true);

window.SpecDemoPanel = { dim, options, toggleSettings, used };
