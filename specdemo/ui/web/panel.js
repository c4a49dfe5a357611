/*
 * The panel: what of it the open tab does not use, what stands under *More*, its lanes, on small screens the sheet with the
 * settings, and the keyboard.
 */

const page = document.documentElement;
const { confirm, setData } = window.SpecDemoDom;
const { fields, lanes: { options: names, rules, methods } } = window.SpecDemoLinkTable;
const LANES = ["lane1", "lane2", "lane3", "lane4"];
/** The fields of what is not under *More*. */
const FIRST = ["prompt", "pair", "target", "draft", "method", "gamma"];
/** Where the panel stands above the stage; the same width as in page.css. */
const SMALL = matchMedia("(max-width: 860px)");
const NO_PROMPT = "This recording does not say its prompt: the panel keeps the one that it has.";
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
    setData(element, "unused", unused?.[2]);
  }
  tell();
}

/**
 * Says beside each *More* what under it is not as the page begins, in the words of links, and shows the tabs of the lanes once
 * others than lane 2 are not.
 */
function tell() {
  const [lines, changed] = [{}, window.SpecDemoLinks.differing()];
  for (const { name, field, kind, element } of fields) {
    const lane = LANES.find((each) => element.startsWith(each));
    const there = lane ? isRead(field, of(lane, "method"), of(lane, "acceptance")) : element && !name.includes(".");
    if (!there || FIRST.includes(field) || !changed.has(name)) continue;
    const words = kind === "switch" ? [["no ", ""][changed.get(name)], name] : [name, " ", changed.get(name)];
    (lines[lane || "run"] ||= []).push(words.join("").replace(/^lane\d\./, "").replace(/[-_]/g, " "));
  }
  for (const more of document.querySelectorAll("#panel .more")) {
    setData(more.querySelector("button > span"), "differs", lines[more.id.split("-")[0]]?.join(", "));
  }
  if (["lane1.method", "lane3.method", "lane4.method"].some((name) => changed.has(name))) page.dataset.lanes = "all";
}

/** Shows the tabs of the lanes, and the first lane that is off at first. */
function addLane() {
  page.dataset.lanes = "all";
  return { __type__: "update", selected: 3 };
}

for (const kind of ["change", "click", "specdemo-link"]) {
  document.addEventListener(kind, () => requestAnimationFrame(dim));
}

/** The parameter of a lane's control, and what it holds. */
const nameOf = (lane, field) => fields.find((each) => each.field === field && each.element.startsWith(lane)).name;
const of = (lane, field) => window.SpecDemoLinks.value(nameOf(lane, field));

/** Whether a lane of this method and acceptance rule reads an option. */
function isRead(option, method, acceptance) {
  return Boolean(methods[method]?.includes(option)) && (!rules[option] || rules[option].includes(acceptance));
}

/** Updates of a lane's options and of their *More*: those that its method and rule read are shown. @returns {object[]} */
function options(method, acceptance, tree) {
  const shown = names.filter((name) => isRead(name, method, acceptance));
  const label = shown.includes("tree_nodes") && tree !== "0" ? "γ, depth of the draft tree" : "γ, tokens drafted per round";
  const updates = names.map((name) => ({ __type__: "update", visible: shown.includes(name), ...(name === "gamma" && { label }) }));
  return [...updates, { __type__: "update", visible: shown.some((name) => name !== "gamma") }];
}

/** Runs again, the first lane that drafts with a γ of its own with this one. */
function runWith(gamma) {
  const lane = LANES.find((each) => isRead("gamma", of(each, "method")) && !of(each, "adaptive_gamma"));
  window.SpecDemoLinks.open(lane ? `#${nameOf(lane, "gamma")}=${gamma}` : "#", () => document.getElementById("run").click());
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

/** The panel takes over the settings of what is shown, by its link, and says so for a moment. */
function used() {
  const { link } = window.SpecDemoPlayer.mount(document.querySelector("#race .race-root")).value;
  window.SpecDemoNotices.show(/(^|&)prompt=/.test(link) ? [] : [NO_PROMPT]);
  window.SpecDemoLinks.open("#" + link, () => confirm(document.getElementById("use-settings"), "The panel has them now"));
}

document.addEventListener("click", ({ target }) => {
  if (target.closest?.("#run-row .start")) showStage();
  const offered = target.closest?.("#real-models [data-pair]");
  if (offered) window.SpecDemoLinks.open(`#pair=${offered.dataset.pair}`, fetchChosen);
}, true);

/** The pair that was chosen is fetched, and its card, which shows how far that is, comes into view. */
function fetchChosen() {
  toggleSettings(true);
  document.getElementById("load-chosen").click();
  document.getElementById("pair").scrollIntoView({ behavior: "smooth", block: "nearest" });
  document.querySelector(`${ROW} .on-${page.dataset.tab}`).focus({ preventScroll: true }); // what had the focus is gone
}

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

// Ctrl and Enter run what the open tab runs, and so does Enter alone in a field for a number, as in any form.
document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (key !== "Enter" || event.repeat || !(event.ctrlKey || event.metaKey || target.matches?.("input[type=number]"))) return;
  event.preventDefault();
  event.stopPropagation();
  document.querySelector(`${ROW} .on-${page.dataset.tab}`).click();
  if (target.matches("textarea")) document.getElementById("panel-look").click(); // the text was not left
}, true);

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

window.SpecDemoPanel = { addLane, dim, options, runWith, toggleSettings, used };
