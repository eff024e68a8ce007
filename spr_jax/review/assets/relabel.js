// The dialog that asks for another class: type part of its name; Enter takes the first match.

const MAX_MATCHES = 50;
const relabelDialog = byId("relabel");
let whenChosen = () => {};

/** The classes whose name contains the typed text, those that begin with it first. */
function matches(typed) {
  const sought = typed.trim().toLowerCase();
  const found = classes.map((name, label) => ({ label, at: name.toLowerCase().indexOf(sought) }));
  return found
    .filter(({ at }) => at >= 0)
    .sort((a, b) => Math.sign(a.at) - Math.sign(b.at) || a.label - b.label)
    .map(({ label }) => label);
}

function showMatches() {
  const found = matches(byId("relabel-search").value);
  const items = found.slice(0, MAX_MATCHES).map((label) => {
    const button = make("button", { type: "button" }, text(classes[label]));
    button.addEventListener("click", () => choose(label));
    return make("li", {}, button);
  });
  if (found.length > items.length) {
    const left = count(found.length - items.length);
    items.push(make("li", { className: "quiet" }, `and ${left} more`));
  }
  byId("relabel-classes").replaceChildren(...items);
}

function choose(label) {
  relabelDialog.close();
  whenChosen(label);
}

function askForClass(index, chosen) {
  whenChosen = chosen;
  byId("relabel-search").value = "";
  byId("relabel-picture").replaceChildren(...(data.pictures ? [picture(index, "cards")] : []));
  showMatches();
  relabelDialog.showModal();
  byId("relabel-search").focus();
}

byId("relabel-search").addEventListener("input", showMatches);
byId("relabel-search").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  const [first] = matches(event.target.value);
  if (first !== undefined) choose(first);
});
byId("relabel-cancel").addEventListener("click", () => relabelDialog.close());
