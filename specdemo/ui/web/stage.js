/*
 * The stage of the race: fetches the rounds as they come and hands them to the player, and says above the lanes what was
 * asked, or to a newcomer what this is. Under it, the runs of this visit, and what this browser remembers of earlier ones.
 *
 * @typedef {{run: string, phase: string, count: number, replaces: ?string, replay: ?object,
 *   lanes: LaneSpec[], question: ?{prompt: string, facts: string[]}}} Sent  a value without its rounds; `count` says how
 *   many there are
 */

/** Milliseconds until a request that failed is sent again. */
const AGAIN = 1000;
const CHANGED = "The settings were changed since this run.";
/** Where the browser keeps what is said of the last runs; of two tabs one would overwrite the other's BrowserState. */
const [STORE, MOST, VISIT] = ["specdemo-runs-1", 12, performance.timeOrigin];
const ABOUT = "A language model writes one token, a word or a piece of one, at a time, and each takes a pass through the whole "
  + "model. In speculative decoding something small and quick guesses the next few tokens, and the model checks them all in one "
  + "pass: it keeps those that it would have written itself, and drops the rest. The text stays the same and is there sooner; "
  + "press Run to see how much.";
const { OVER, button, confirm, make, setText, mounting } = window.SpecDemoDom;
const { most } = window.SpecDemoLinkTable.lanes;

/** γ of the first lane that drafts, under a run that is over: let go, the slider runs again with another. */
class Gamma {
  constructor(parent) {
    this.label = make("label", "race-again-gamma", parent, "run again with γ", { title: "By the keyboard, with Enter" });
    this.slider = make("input", "", this.label, null, { type: "range", min: 1, max: most, "data-role": "gamma" });
    this.number = make("output", "", this.label);
    this.label.hidden = true;
    const run = () => window.SpecDemoPanel.runWith(this.slider.value);
    this.slider.addEventListener("input", () => setText(this.number, this.slider.value));
    this.slider.addEventListener("pointerup", run);
    this.slider.addEventListener("keydown", (event) => {
      event.stopPropagation(); // the arrows are the slider's here, not the player's
      if (event.key === "Enter") run();
    });
  }

  /** Comes as the first run ends, and stays, so that it keeps the focus. @param {Sent} value */
  update({ phase, lanes }) {
    const drafts = lanes?.find((lane) => lane.gamma > 0 && !lane.server);
    this.label.hidden = !drafts || Boolean(drafts.adaptive) || (this.label.hidden && !OVER.has(phase));
    this.slider.value = drafts?.gamma;
    setText(this.number, this.slider.value);
  }
}

const frame = () => (document.hidden ? null : new Promise(requestAnimationFrame));

/**
 * Each round is fetched once (`RoundStreams` in session_recordings.py); a page that was hidden, busy or slow fetches more of
 * them at once, and values that were overtaken meanwhile are not shown.
 */
class Stage {
  constructor(root) {
    this.player = window.SpecDemoPlayer.mount(root);
    this.value = this.run = this.last = null;
    this.rounds = [];
    this.busy = false;
    this.caption = new Caption(root);
  }

  /** Shows a value as soon as its rounds are here. @param {?Sent} value  @param {([run, from]) => Promise<Round[]>} fetch */
  async receive(value, fetch) {
    // The lanes that are set may arrive late, when something else is shown already.
    if (value?.phase === "idle" && this.value && this.value.phase !== "idle") return;
    if (value?.count) this.last = value;
    // What ended before it gave anything, such as bad input, leaves the last run where it is.
    else if (OVER.has(value?.phase) && this.last) value = { ...this.last, phase: value.phase, message: value.message };
    this.value = value;
    this.caption.update(value);
    if (this.busy) return; // whoever is busy goes on with the newest value
    this.busy = true;
    for (let shown; shown !== this.value;) {
      shown = this.value;
      await this.follow(shown, fetch);
      await frame();
      this.player.update(shown && { ...shown, rounds: this.rounds });
    }
    this.busy = false;
  }

  /** Fetches the rounds of a value that are not here. */
  async follow(value, fetch) {
    if (value?.run !== this.run) [this.run, this.rounds] = [value?.run, []];
    while (value?.count > this.rounds.length && value === this.value) {
      try {
        this.rounds.push(...await fetch([this.run, this.rounds.length]));
        return; // the server may have forgotten a run of long ago
      } catch {
        await new Promise((resolve) => setTimeout(resolve, AGAIN));
      }
    }
  }
}

/** Above the lanes what was asked, or before the first run of this browser what this is. */
class Caption {
  constructor(root) {
    this.line = make("div", "race-question", null, null, { "data-role": "question" });
    this.about = make("section", "race-newcomer", null, null, { "data-role": "about" });
    make("h3", "", this.about, "What is this?");
    make("p", "", this.about, ABOUT);
    root.querySelector(".race-lanes").before(this.about);
    this.prompt = make("q", "", this.line, null, { dir: "auto" });
    this.facts = make("p", "", this.line);
    this.gamma = new Gamma(this.line);
    this.changed = make("p", "race-changed", this.line, CHANGED, { role: "status", "data-role": "changed" });
    root.querySelector(".race-lanes").before(this.line);
    this.requested = this.run = null;
    this.ran = kept() !== null;
    document.addEventListener("specdemo-link", () => this.compare());
    this.update(null);
  }

  /** @param {?Sent} value */
  update(value) {
    const { question } = value || {};
    this.line.hidden = !question || Boolean(value.replay);
    this.about.hidden = this.ran || (value?.phase ?? "idle") !== "idle";
    this.ran ||= Boolean(question);
    if (!question) return;
    this.gamma.update(value);
    setText(this.prompt, question.prompt.trim());
    setText(this.facts, question.facts.join(" · "));
    if (value.run === this.run) return;
    // Where servers reported their rounds in the end, the run goes on under another name.
    if (value.replaces !== this.run || !this.run) this.requested = window.SpecDemoLinks.race();
    this.run = value.run;
    this.compare();
  }

  /** Whether the panel still says what was asked. */
  compare() {
    this.changed.hidden = this.requested === null || this.requested === window.SpecDemoLinks.race();
  }
}

/** What the browser keeps of runs, as text; null before the first one, or where it keeps nothing for a page. */
function kept() {
  try {
    return localStorage.getItem(STORE);
  } catch {
    return null;
  }
}

/** The runs of other visits; nothing of what cannot be read, or is no such thing. */
function remembered() {
  const whole = ({ visit, link, lanes }) => visit !== VISIT && typeof link === "string" && Array.isArray(lanes);
  try {
    return JSON.parse(kept()).filter(whole);
  } catch {
    return [];
  }
}

function remember(runs) {
  try {
    localStorage.setItem(STORE, JSON.stringify(runs.slice(0, MOST)));
  } catch {} // a browser may keep nothing for a page
}

/** A list of runs with its title; nothing where there are none. `choose` also takes the line that says what ran. */
function listed(title, runs, choose) {
  const list = make("ol");
  for (const run of runs) {
    const { prompt, lanes, figure, text, doubt, trend } = run;
    const [current, date] = run.visit === VISIT ? [run.current] : [false, run.date];
    const line = make("small", "", null, [date, lanes.join(" · "), text, doubt && "in doubt"].filter(Boolean).join("; "));
    const row = button(make("li", "", list), "", null, () => choose(run, line), { "aria-current": String(current) });
    make("strong", "", row, figure || "–", { "data-trend": trend, ...(doubt ? { "data-doubt": "yes" } : {}) });
    make("span", "", row, `${prompt}`.trim().replace(/\s+/g, " "), { dir: "auto" });
    row.append(line);
  }
  return runs.length ? [make("h3", "", null, title), list] : [];
}

/** Shows the runs of this visit, and those that only the settings are left of. @param {(number: number) => void} choose */
function show(root, runs, choose) {
  const [here, earlier] = [(runs || []).map((run) => ({ ...run, visit: VISIT })), remembered()];
  if (here.length) remember([...here, ...earlier]);
  root.hidden = !here.length && !earlier.length;
  root.replaceChildren(
    ...listed("Runs of this visit", here, (run) => choose(run.number)),
    ...listed("Earlier in this browser: press one for its settings", earlier, (run, line) => {
      window.SpecDemoLinks.open("#" + run.link);
      confirm(line, "The panel has its settings now");
    }),
  );
  if (earlier.length) button(root, "", "Forget these", () => { remember(here); show(root, runs, choose); });
}

window.SpecDemoStage = { mount: mounting(Stage) };
window.SpecDemoHistory = { show };
