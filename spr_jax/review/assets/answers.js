// The reviewer's answers: the correct class of each answered example, changed or not.

const STORE = `spr_jax.review.${data.fingerprint}`;
const answers = new Map();
const steps = []; // for undo: lists of [example, answer before or undefined]

/** Read the stored answers; false if this browser stores nothing. */
function loadAnswers() {
  answers.clear();
  try {
    const kept = JSON.parse(localStorage.getItem(STORE) ?? "[]");
    for (const [index, label] of kept) {
      if (index in given && label in classes) answers.set(index, label);
    }
    return true;
  } catch {
    return false;
  }
}

function saveAnswers() {
  try {
    localStorage.setItem(STORE, JSON.stringify([...answers]));
    return true;
  } catch {
    return false;
  }
}

function put(index, label) {
  if (label === undefined) answers.delete(index);
  else answers.set(index, label);
}

/** Set answers, or remove them with `undefined`, as one step of undo. */
function answer(changes) {
  steps.push(changes.map(([index]) => [index, answers.get(index)]));
  for (const [index, label] of changes) put(index, label);
}

/** Undo the last step; return its examples. */
function undo() {
  const changes = steps.pop() ?? [];
  for (const [index, label] of changes) put(index, label);
  return changes.map(([index]) => index);
}

/** Format a CSV cell. A spreadsheet would run a text that begins like a formula: a quote before it
 * prevents this, and `spr_jax.apply` removes that quote. */
function cell(value) {
  const guarded = /^'*[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded;
}

/** All answers in the order of the data, with the labels that were confirmed. */
function corrections() {
  const rows = [...answers].sort(([a], [b]) => a - b);
  const lines = rows.map(([index, label]) =>
    [nameOf(index), classes[given[index]], classes[label]].map(cell).join(","),
  );
  return ["id,label,corrected", ...lines, ""].join("\n");
}

function download(name, content) {
  const url = URL.createObjectURL(new Blob([content], { type: "text/csv" }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
