// What the user has chosen; every view listens.
const selection = { chosen: new Uint8Array(nRows), count: 0 };
const listeners = { selection: [], colour: [], hover: [], theme: [] };

function on(event, listener) { listeners[event].push(listener); }
function tell(event, detail) { for (const listener of listeners[event]) listener(detail); }

// `how` is "replace", "add", or "toggle".
function select(rows, how = "replace") {
  const chosen = selection.chosen;
  if (how === "replace") chosen.fill(0);
  for (const row of rows) chosen[row] = how === "toggle" ? 1 - chosen[row] : 1;
  let count = 0;
  for (let i = 0; i < nRows; i++) count += chosen[i];
  selection.count = count;
  tell("selection");
}

function rowsWhere(test) {
  const found = [];
  for (let i = 0; i < nRows; i++) if (test(i)) found.push(i);
  return found;
}

// Elements are made from text alone: nothing of the data is ever read as markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

function speak(text) { document.getElementById("spoken").textContent = text; }
function variable(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
