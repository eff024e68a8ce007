// The page as a whole: the reader's choices, and the handlers of all events.

const ANY = -1;
const view = { show: "suspects", sort: "suspicion", given: ANY, suggested: ANY };
let threshold = null; // as detected
let suspect = detected;

function showProgress() {
  const here = list.reduce((sum, index) => sum + answers.has(index), 0);
  byId("progress").textContent = `${count(here)} of ${count(list.length)} reviewed`;
  byId("progress-bar").max = Math.max(1, list.length);
  byId("progress-bar").value = here;
  let changed = 0;
  for (const [index, label] of answers) changed += label !== given[index];
  byId("answered").textContent = count(answers.size);
  byId("answered-more").textContent =
    `${count(changed)} to change, ${count(answers.size - changed)} to keep`;
  byId("export").disabled = byId("clear").disabled = answers.size === 0;
  byId("undo").disabled = steps.length === 0;
}

function showGallery() {
  showList(listed(view, suspect, answers));
  byId("empty").hidden = list.length > 0;
  const anySuspects = suspect.includes(1);
  byId("empty").textContent =
    view.show === "suspects" && !anySuspects
      ? "No label is suspect by this criterion. Relax it with the slider, or show all examples."
      : "Nothing matches these filters.";
  showProgress();
}

function showChosen() {
  for (const name of ["show", "sort", "given", "suggested"]) byId(name).value = view[name];
}

/** Show everything that depends on the criterion and the filters. */
function update() {
  suspect = suspectsAbove(threshold);
  const result = tally(suspect);
  showCriterion();
  showTally(result);
  showClassTally(result, view);
  showHeatTally(result, view);
  showChosen();
  showGallery();
}

function showCriterion() {
  const words =
    threshold === null
      ? data.criterion
      : `probability of being wrong above ${Number((100 * threshold).toFixed(1))} %`;
  byId("criterion").textContent = words;
  byId("slider").setAttribute("aria-valuetext", words);
  byId("as-detected").setAttribute("aria-pressed", threshold === null);
}

function setCriterion(chosen) {
  threshold = chosen;
  if (chosen === null) byId("slider").value = THRESHOLDS.indexOf(0.5);
  update();
}

/** Filter by classes; the same choice again removes the filter. */
function chooseClasses(from, to = ANY) {
  const again = view.given === from && view.suggested === to;
  Object.assign(view, again ? { given: ANY, suggested: ANY } : { given: from, suggested: to });
  update();
}

function afterAnswers(indices) {
  byId("unsaved").hidden = saveAnswers();
  for (const index of indices) {
    const card = cardAt(index);
    if (card) showAnswer(card);
  }
  showProgress();
}

function give(index, label) {
  answer([[index, label]]);
  afterAnswers([index]);
}

const ACTIONS = {
  accept(index) {
    if (given[index] === suggested[index]) return;
    give(index, suggested[index]);
    move(1);
  },
  reject(index) {
    give(index, given[index]);
    move(1);
  },
  relabel(index) {
    askForClass(index, (label) => {
      give(index, label);
      move(1);
    });
  },
  retract(index) {
    if (answers.has(index)) give(index, undefined);
  },
};

function takeBack() {
  const indices = undo();
  afterAnswers(indices);
  if (indices.length === 1) cardAt(indices[0])?.focus();
}

function clearAll() {
  const indices = [...answers.keys()];
  answer(indices.map((index) => [index, undefined]));
  afterAnswers(indices);
}

const KEYS = { a: "accept", r: "reject", l: "relabel", x: "retract" };

function onKey(event) {
  const typing = event.target.closest("input, select, textarea, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.toLowerCase();
  if (key === "u") takeBack();
  else if (key === "arrowright") move(1);
  else if (key === "arrowleft") move(-1);
  else if (!(key in KEYS)) return;
  else if (cardAt(current)) ACTIONS[KEYS[key]](current);
  else move(0);
  event.preventDefault();
}

function fillClasses(select) {
  const options = classes.map((name, label) => make("option", { value: label }, name));
  select.append(make("option", { value: ANY }, "any class"), ...options);
}

function showAbout() {
  document.title = byId("title").textContent = data.title;
  byId("about").textContent =
    `${count(numExamples)} examples of ${count(classes.length)} ` +
    `${classes.length === 1 ? "class" : "classes"}, reviewed entirely in this file: nothing leaves ` +
    `your computer.${data.source ? ` Features: ${data.source}.` : ""} ` +
    `Made by spr_jax ${data.version}.`;
  byId("unexplained").hidden = data.explained;
  const kept = data.pictures ? Object.keys(data.pictures.cards).length : cardOf.size;
  const what = data.pictures ? "Pictures and nearest" : "Nearest";
  byId("capped").textContent =
    kept < numExamples
      ? `${what} clean examples are shown for ${count(kept)} examples: the most suspect, ` +
        "overall and of each pair of classes."
      : "";
}

function connect() {
  byId("slider").max = THRESHOLDS.length - 1;
  byId("slider").addEventListener("input", (event) => setCriterion(THRESHOLDS[event.target.value]));
  byId("as-detected").addEventListener("click", () => setCriterion(null));
  for (const name of ["show", "sort", "given", "suggested"]) {
    byId(name).addEventListener("change", ({ target }) => {
      view[name] = name === "given" || name === "suggested" ? Number(target.value) : target.value;
      update();
    });
  }
  byId("reset").addEventListener("click", () => {
    Object.assign(view, { show: "suspects", sort: "suspicion", given: ANY, suggested: ANY });
    update();
  });
  byId("undo").addEventListener("click", takeBack);
  byId("clear").addEventListener("click", clearAll);
  byId("export").addEventListener("click", () => download("corrections.csv", corrections()));
  byId("more").addEventListener("click", showMore);
  gallery.addEventListener("focusin", (event) => {
    current = Number(event.target.closest(".card").dataset.index);
  });
  gallery.addEventListener("click", (event) => {
    const index = Number(event.target.closest(".card")?.dataset.index);
    const action = event.target.closest("button")?.dataset.action;
    if (action) ACTIONS[action](index);
  });
  document.addEventListener("keydown", onKey);
  window.addEventListener("storage", (event) => {
    if (event.key !== STORE) return; // answered in another window
    loadAnswers();
    for (const card of gallery.children) showAnswer(card);
    showProgress();
  });
}

function start() {
  showAbout();
  showRates();
  fillClasses(byId("given"));
  fillClasses(byId("suggested"));
  buildClasses(chooseClasses);
  buildHeat(chooseClasses);
  connect();
  byId("unsaved").hidden = loadAnswers();
  setCriterion(null);
}

start();
