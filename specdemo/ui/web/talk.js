/* The talk view: nothing but the race, in large type, driven by keys that press the page's own buttons. */

const { ARROWS, make, setText } = window.SpecDemoDom;
/** Buttons of the view: their keys, what they are called, and whether a small screen has them too. */
const BUTTONS = [
  ["R", "Run", "r", true], ["S", "Stop", "s", true], ["space", "Pause", " ", true], ["←", "a round back", "ArrowLeft"],
  ["→", "a round on", "ArrowRight"], ["X", "rejected", "x"], ["B", "tree", "b"], ["T", "Leave", "t", true],
];
const page = document.documentElement;

const active = () => page.classList.contains("talk-view");
const press = (id) => {
  const button = document.getElementById(id);
  if (button && !button.disabled) button.click();
};
const player = () => window.SpecDemoPlayer.mount(document.querySelector("#race .race-root"));

/** Names the button that pauses by what it does next, as the player calls it. */
function namePause(name) {
  const button = document.querySelector('.talk-keys [data-key=" "] span');
  if (button && name) setText(button, name);
}

function addButtons() {
  if (document.querySelector(".talk-keys")) return;
  const line = make("div", "talk-keys", document.body, null, { role: "toolbar", "aria-label": "Talk view" });
  for (const [sign, what, key, small] of BUTTONS) {
    const button = make("button", small ? "" : "large-only", line, null, { type: "button", "data-key": key });
    make("kbd", "", button, sign, { "aria-hidden": "true" });
    make("span", "", button, what);
    button.addEventListener("click", () => {
      act(key, false);
      button.blur(); // else space would press it again
    });
  }
  namePause(document.querySelector("#race [data-action=play]")?.textContent);
}

/** Shows the view, or the page; where this is a step of Back, or of the link, it is not remembered. */
function show(shown) {
  if (shown === active() && (!shown || document.querySelector(".talk-keys"))) return;
  page.classList.toggle("talk-view", shown);
  if (shown) {
    addButtons();
    window.SpecDemoTabs.open("race");
    document.activeElement?.blur(); // the pressed button is hidden now, and must not receive the keys
    window.scrollTo(0, 0);
  }
  window.SpecDemoLinks.set("view", shown ? "talk" : "page");
}

/** Enters the view; Back leaves it. */
function enter() {
  if (!active()) window.SpecDemoTabs.remember({ talk: true, tab: "race" });
  show(true);
}

function leave() {
  if (window.SpecDemoTabs.here.talk && window.SpecDemoTabs.here.pushed) history.back();
  else show(false);
}

/** Whether a key has another meaning in the element where it was pressed. */
function taken(event) {
  const { target } = event;
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return true;
  if (!(target instanceof Element)) return false;
  if (target.closest("input[type=checkbox]")) return event.key === " ";
  if (target.closest("input, textarea, select, [contenteditable]:not([contenteditable=false]), [role=listbox]")) return true;
  return event.key === " " && target.closest("button, summary, a[href]") !== null;
}

/** Does what a key means; false if it means nothing. @param {boolean} repeated whether the key is held down */
function act(key, repeated) {
  if (ARROWS[key]) player().stepAny(ARROWS[key]);
  else if (repeated) return false;
  else if (key === " ") player().toggle();
  else if (key === "r") press("run");
  else if (key === "s") press("stop");
  else if (key === "x") document.querySelector("#race [data-role=show-rejected]").click();
  else if (key === "b") document.querySelector("#race .tree-toggle:not([hidden]) [data-role=show-tree]")?.click();
  else if (key === "t" || key === "Escape") leave();
  else return false;
  return true;
}

// While capturing, so before the page's own keys: in the talk view an arrow always steps by a round.
document.addEventListener("keydown", (event) => {
  if (taken(event)) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const acted = active() ? act(key, event.repeat) : key === "t" && !event.repeat && (enter(), true);
  if (!acted) return;
  event.preventDefault();
  event.stopPropagation();
}, true);

document.addEventListener("race-play", ({ target, detail }) => { if (target.closest("#race")) namePause(detail); });

// At once, so that the page does not flash; the rest follows when the server has read the link.
if (window.SpecDemoLinks.opened.view === "talk") page.classList.add("talk-view");

window.SpecDemoTalk = { enter, show };
