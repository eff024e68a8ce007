// The cards of the examples. Only a few are made at first, more when one scrolls near the end.

const CARDS_AT_ONCE = 24;
const gallery = byId("gallery");
let list = new Uint32Array(0); // the examples to show
let numMade = 0;
let current = -1; // example of the card that had the focus last

const nearEnd = new IntersectionObserver(
  ([end]) => {
    if (end.isIntersecting) showMore();
  },
  { rootMargin: "600px" },
);

function picture(index, kind) {
  const kept = data.pictures[kind][index];
  if (!kept) return make("span", { className: "no-picture" }, "no picture");
  const image = make("img", { src: `data:image/webp;base64,${kept}`, alt: "", decoding: "async" });
  image.addEventListener("load", () => {
    image.classList.toggle("tiny", image.naturalWidth <= 64); // show sharp pixels, not a blur
  });
  return image;
}

/** The nearest clean examples of one class: their pictures, or their names. */
function likeness(index, side) {
  const label = (side ? suggested : given)[index];
  const others = evidenceOf(index, side);
  const nearest = others.map((other) => {
    const name = nameOf(other.index);
    const title = `${name}, similarity ${other.cosine.toFixed(2)}`;
    return data.pictures
      ? make("span", { className: "near", title }, picture(other.index, "neighbours"))
      : make("bdi", { className: "near-name", title }, name.split("/").pop());
  });
  const best = others.length ? others[0].cosine.toFixed(2) : "none";
  return make(
    "div",
    { className: "likeness" },
    make("span", { className: "like" }, "like", text(classes[label]), best),
    make("span", { className: "nearest" }, ...nearest),
  );
}

function evidence(index) {
  if (!cardOf.has(index)) return [];
  return given[index] === suggested[index]
    ? [likeness(index, 0)]
    : [likeness(index, 0), likeness(index, 1)];
}

function actionButton(action, name, key) {
  const button = make("button", { type: "button", title: `${name} (${key})` });
  button.append(name, make("kbd", {}, key));
  button.dataset.action = action;
  button.tabIndex = -1; // keys do the same; Tab stops at the card itself
  return button;
}

function makeCard(index) {
  const proposed = suggestion(given[index], suggested[index]);
  const card = make("article", { className: "card", tabIndex: 0 });
  card.setAttribute("role", "listitem");
  card.setAttribute(
    "aria-label",
    `${nameOf(index)}: given ${classes[given[index]]}, suggested ${proposed}`,
  );
  card.dataset.index = index;
  const labels = make(
    "p",
    { className: "labels" },
    make("span", { className: "given" }, text(classes[given[index]])),
    make("span", { className: "arrow" }, "→"),
    make("span", { className: "suggested" }, text(proposed)),
  );
  const numbers = make(
    "p",
    { className: "numbers", title: "probability that the label is wrong" },
    "error probability ",
    make("strong", {}, probability(errorProbability[index])),
  );
  const details = make(
    "p",
    { className: "details quiet" },
    make("span", { className: "name" }, text(nameOf(index))),
    make(
      "span",
      { title: "penalty at which the example enters the path: larger, more suspect" },
      `entry penalty ${entryPenalty[index].toPrecision(3)}`,
    ),
  );
  const accept = actionButton("accept", "Accept", "A");
  accept.disabled = given[index] === suggested[index];
  const actions = make(
    "div",
    { className: "actions" },
    accept,
    actionButton("reject", "Reject", "R"),
    actionButton("relabel", "Relabel", "L"),
  );
  const verdict = make("p", { className: "verdict" });
  const body = make("div", { className: "body" }, labels, numbers, details, ...evidence(index));
  if (data.pictures) {
    card.append(make("div", { className: "picture" }, picture(index, "cards")));
  }
  card.append(body, verdict, actions);
  showAnswer(card);
  return card;
}

function showAnswer(card) {
  const index = Number(card.dataset.index);
  const label = answers.get(index);
  const kind = label === undefined ? "open" : label === given[index] ? "kept" : "changed";
  card.dataset.answer = kind;
  const verdict = card.querySelector(".verdict");
  if (kind === "open") verdict.replaceChildren();
  else if (kind === "kept") verdict.replaceChildren("✓ stays ", text(classes[label]));
  else verdict.replaceChildren("✎ becomes ", text(classes[label]));
}

function cardAt(index) {
  return gallery.querySelector(`[data-index="${index}"]`);
}

function showList(indices) {
  list = indices;
  numMade = 0;
  current = -1;
  gallery.replaceChildren();
  showMore();
}

function showMore() {
  const next = list.subarray(numMade, numMade + CARDS_AT_ONCE);
  gallery.append(...Array.from(next, makeCard));
  numMade += next.length;
  const left = list.length - numMade;
  byId("more").hidden = left === 0;
  byId("more").textContent = `Show more (${count(left)} left)`;
  nearEnd.unobserve(byId("more")); // observed anew, it fires again if the end is still near
  nearEnd.observe(byId("more"));
}

/** Focus the card `step` cards after the current one, or the first. */
function move(step) {
  const card = cardAt(current);
  const cards = gallery.children;
  const position = card ? Array.prototype.indexOf.call(cards, card) + step : 0;
  if (position >= numMade - 4 && numMade < list.length) showMore();
  const next = cards[Math.max(0, Math.min(position, cards.length - 1))];
  next?.focus({ preventScroll: true });
  next?.scrollIntoView({ block: "nearest" });
}
