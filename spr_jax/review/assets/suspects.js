// The suspects: their choice, their counts, and the list to show.

// Steps of the slider: most probabilities are near 0 or 1, so steps are finer there.
const THRESHOLDS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55,
  0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999,
];

/** Those the detector chose (no threshold), or all with a larger error probability. */
function suspectsAbove(threshold) {
  if (threshold === null) return detected;
  return Uint8Array.from(errorProbability, (value) => value > threshold);
}

/** Count the suspects: overall, by given class, by pair; and the wrong labels expected. */
function tally(suspect) {
  const numClasses = classes.length;
  const result = {
    suspects: 0,
    caught: 0, // wrong labels expected among the suspects
    missed: 0, // and among the rest
    byClass: new Uint32Array(numClasses),
    pairs: new Uint32Array(numClasses * numClasses), // given, suggested
  };
  for (let i = 0; i < numExamples; i++) {
    if (suspect[i]) {
      result.suspects++;
      result.caught += errorProbability[i];
      result.byClass[given[i]]++;
      result.pairs[given[i] * numClasses + suggested[i]]++;
    } else {
      result.missed += errorProbability[i];
    }
  }
  return result;
}

const SHOWN = {
  suspects: (i, suspect) => suspect[i],
  open: (i, suspect, answers) => suspect[i] && !answers.has(i),
  answered: (i, suspect, answers) => answers.has(i),
  changed: (i, suspect, answers) => answers.has(i) && answers.get(i) !== given[i],
  rest: (i, suspect) => !suspect[i],
  all: () => true,
};

const SORTED = {
  suspicion: () => order,
  doubt: () => order.slice().reverse(),
  entry: () => order.slice().sort((a, b) => entryPenalty[b] - entryPenalty[a]),
  position: () => order.slice().sort(),
};
const sorted = new Map();

function inOrder(sort) {
  if (!sorted.has(sort)) sorted.set(sort, SORTED[sort]());
  return sorted.get(sort);
}

/** Indices of the examples to list. `view`: show, sort, and a given and a suggested class or -1. */
function listed(view, suspect, answers) {
  const isShown = SHOWN[view.show];
  return inOrder(view.sort).filter(
    (i) =>
      (view.given < 0 || given[i] === view.given) &&
      (view.suggested < 0 || suggested[i] === view.suggested) &&
      isShown(i, suspect, answers),
  );
}
