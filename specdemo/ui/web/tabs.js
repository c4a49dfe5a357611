/*
 * Tabs: which one is open, the browser's Back, and arrow keys.
 * The page's styles read the open tab from `data-tab` of the root element: they show its button in the panel.
 */

const page = document.documentElement;
const TABS = window.SpecDemoLinkTable.fields.find((field) => field.name === "tab").choices;
const KEYS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity };
const asked = window.SpecDemoLinks.opened.tab;
page.dataset.tab = TABS.includes(asked) ? asked : TABS[0]; // at once, so that the panel's button does not change
/** The present step: the tab, whether it is the talk view, and whether Back undoes it. */
let here = { tab: page.dataset.tab, talk: false, pushed: false };

const tablist = () => document.querySelector("#stage > .tab-wrapper");
/** The button of a tab, which is in a menu where the window is too narrow for all. */
const buttonOf = (tab) => tablist()?.querySelector(`[data-tab-id="${tab}"]`)
  || [...(tablist()?.querySelectorAll(".overflow-dropdown button") || [])][TABS.indexOf(tab) - TABS.length];

/** A tab was opened, by whomever. */
function opened(tab) {
  if (tab !== page.dataset.tab) {
    page.dataset.tab = tab;
    if (tab !== here.tab) remember({ tab });
  }
  window.SpecDemoPanel.dim();
  window.SpecDemoLinks.set("tab", tab);
}

const open = (tab) => buttonOf(tab)?.click();

// ---- Back ----------------------------------------------------------------------------------------------------

/** A step that Back undoes. @param {{tab: ?string, talk: ?boolean}} change */
function remember(change) {
  history.replaceState({ ...history.state, specdemo: here }, "");
  here = { ...here, ...change, pushed: true };
  history.pushState({ specdemo: here }, "");
}

window.addEventListener("popstate", (event) => {
  if (!event.state?.specdemo) return;
  here = event.state.specdemo;
  window.SpecDemoTalk.show(here.talk);
  if (here.tab !== page.dataset.tab) open(here.tab);
  else window.SpecDemoLinks.set("tab", here.tab); // the address of that step may be older than the controls
});

// ---- keys ----------------------------------------------------------------------------------------------------

// Gradio's tabs take no arrow keys. The same for the lanes' tabs.
document.addEventListener("keydown", (event) => {
  const tab = event.target.closest?.("[role=tab]");
  if (!tab || !(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = [...tab.closest("[role=tablist]").querySelectorAll("[role=tab]")];
  const place = all.indexOf(tab) + KEYS[event.key];
  const next = all[Number.isFinite(place) ? (place + all.length) % all.length : place < 0 ? 0 : all.length - 1];
  next.focus();
  next.click();
  event.preventDefault();
  event.stopPropagation();
}, true);

window.SpecDemoTabs = { opened, open, remember, get here() { return here; } };
