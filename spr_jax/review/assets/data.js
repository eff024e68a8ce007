"use strict";

// The numbers of every example, as Python wrote them, and the format of numbers and texts.

const data = JSON.parse(document.getElementById("data").textContent);

function unpack(text, Type) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return new Type(bytes.buffer);
}

const given = unpack(data.given, Uint16Array);
const suggested = unpack(data.suggested, Uint16Array);
const errorProbability = unpack(data.errorProbability, Float32Array);
const entryPenalty = unpack(data.entryPenalty, Float32Array);
const detected = unpack(data.suspect, Uint8Array);
const order = unpack(data.order, Uint32Array); // the most suspect first
const rates = unpack(data.rates, Float32Array); // estimate, low, high: overall, then for each class
const neighbours = unpack(data.neighbours, Int32Array); // [cards, given and suggested, k]
const cosines = unpack(data.cosines, Float32Array);
const cardOf = new Map(Array.from(unpack(data.cards, Uint32Array), (index, card) => [index, card]));
const classes = data.classes;
const numExamples = given.length;

function nameOf(index) {
  return data.names ? data.names[index] : String(index);
}

/** A label can be suspect although no other class is more probable. */
function suggestion(from, to) {
  return from === to ? "unsure which" : classes[to];
}

/** The nearest clean examples of the given (0) or the suggested (1) class. */
function evidenceOf(index, side) {
  if (!cardOf.has(index)) return [];
  const k = data.numNeighbours;
  const start = (cardOf.get(index) * 2 + side) * k;
  return Array.from({ length: k }, (_, i) => ({
    index: neighbours[start + i],
    cosine: cosines[start + i],
  })).filter((other) => other.index >= 0);
}

function count(number) {
  return Math.round(number).toLocaleString("en");
}

function percent(fraction) {
  return Number.isNaN(fraction) ? "unknown" : `${(100 * fraction).toFixed(1)} %`;
}

/** Many probabilities are near 0 or 1, where rounding would make them certain. */
function probability(value) {
  if (value > 0.999) return "> 99.9 %";
  if (value < 0.001) return "< 0.1 %";
  return percent(value);
}

function byId(id) {
  return document.getElementById(id);
}

/** Make an element. Strings become text nodes: no class name is ever markup. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Show a user's text, isolated so that it cannot reorder the text around it. */
function text(value) {
  return make("bdi", { title: value }, value);
}
