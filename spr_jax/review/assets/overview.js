// The numbers above the gallery: tiles, the table of classes and the heat map.

const MAX_HEAT_CLASSES = 20;

function fraction(part, whole) {
  return percent(whole ? part / whole : NaN);
}

function showRates() {
  const [rate, low, high] = rates;
  byId("rate").textContent = percent(rate);
  byId("rate-more").textContent =
    `${percent(low)} to ${percent(high)}; about ${count(rate * numExamples)} labels`;
}

function showTally(result) {
  byId("suspects").textContent = count(result.suspects);
  byId("suspects-more").textContent = `${fraction(result.suspects, numExamples)} of all examples`;
  byId("expected").textContent = result.suspects ? fraction(result.caught, result.suspects) : "–";
  byId("expected-more").textContent =
    `about ${count(result.caught)} wrong; about ${count(result.missed)} missed`;
}

/** Build the table once; `showClassTally` fills in what depends on the criterion. */
function buildClasses(choose) {
  const examples = new Uint32Array(classes.length);
  for (const label of given) examples[label]++;
  const heads = ["Class", "Examples", "Wrong (est.)", "Suspects", "Confused with"];
  const head = make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, name)));
  const rows = classes.map((name, label) => {
    const [rate, low, high] = rates.subarray(3 * label + 3);
    const button = make("button", { type: "button", className: "link" }, text(name));
    button.addEventListener("click", () => choose(label));
    const bar = make("span", { className: "share" });
    bar.style.setProperty("--share", rate || 0);
    const interval = make("span", { className: "quiet" }, `${percent(low)} – ${percent(high)}`);
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, button),
      make("td", {}, count(examples[label])),
      make("td", { className: "rate" }, percent(rate), " ", interval, bar),
      make("td", { className: "suspects" }),
      make("td", { className: "mostly" }),
    );
  });
  byId("classes").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
}

function showClassTally(result, view) {
  [...byId("classes").tBodies[0].rows].forEach((row, label) => {
    row.querySelector(".suspects").textContent = count(result.byClass[label]);
    const mostly = mostlySuggested(result, label);
    row.querySelector(".mostly").replaceChildren(mostly < 0 ? "–" : text(classes[mostly]));
    row.classList.toggle("chosen", view.given === label);
    row.querySelector("button").setAttribute("aria-pressed", view.given === label);
  });
}

function mostlySuggested(result, label) {
  const numClasses = classes.length;
  let best = -1;
  for (let other = 0; other < numClasses; other++) {
    const here = result.pairs[label * numClasses + other];
    if (other !== label && here > (best < 0 ? 0 : result.pairs[label * numClasses + best])) {
      best = other;
    }
  }
  return best;
}

/** The classes of the heat map: if there are many, those with most wrong labels expected. */
function heatClasses() {
  const all = classes.map((_, label) => label);
  if (all.length <= MAX_HEAT_CLASSES) return all;
  const expected = new Float64Array(classes.length);
  for (let i = 0; i < numExamples; i++) expected[given[i]] += errorProbability[i];
  const most = all.sort((a, b) => expected[b] - expected[a]).slice(0, MAX_HEAT_CLASSES);
  return most.sort((a, b) => a - b);
}

function buildHeat(choose) {
  const shown = heatClasses();
  if (shown.length < classes.length) {
    byId("heat-about").append(
      ` Shown: the ${shown.length} classes with the most wrong labels, of ${count(classes.length)}.`,
    );
  }
  const heads = shown.map((label) =>
    make("th", { scope: "col" }, make("span", {}, text(classes[label]))),
  );
  const head = make("tr", {}, make("th", {}, "given ↓  suggested →"), ...heads);
  const rows = shown.map((from) => {
    const cells = shown.map((to) => make("td", {}, heatCell(from, to, choose)));
    return make("tr", {}, make("th", { scope: "row" }, text(classes[from])), ...cells);
  });
  byId("heat").classList.toggle("tall", shown.some((label) => classes[label].length > 4));
  byId("heat").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
}

function heatCell(from, to, choose) {
  const className = from === to ? "heat unsure" : "heat";
  const button = make("button", { type: "button", className });
  button.dataset.from = from;
  button.dataset.to = to;
  button.addEventListener("click", () => choose(from, to));
  return button;
}

function showHeatTally(result, view) {
  const cells = [...byId("heat").querySelectorAll("button")];
  const numbers = cells.map(
    ({ dataset }) => result.pairs[Number(dataset.from) * classes.length + Number(dataset.to)],
  );
  const most = Math.max(1, ...numbers.filter((_, i) => !cells[i].matches(".unsure")));
  cells.forEach((button, i) => {
    const [from, to] = [Number(button.dataset.from), Number(button.dataset.to)];
    const heat = Math.sqrt(numbers[i] / most); // so that small numbers show next to large ones
    button.textContent = numbers[i] ? count(numbers[i]) : "·";
    button.disabled = !numbers[i];
    button.style.setProperty("--heat", heat);
    button.setAttribute("aria-pressed", view.given === from && view.suggested === to);
    button.setAttribute(
      "aria-label",
      `${numbers[i]} suspects given ${classes[from]}, suggested ${suggestion(from, to)}`,
    );
  });
}
