// The data of the page: arrays decoded, rows of the target first, then those of the background.
const report = JSON.parse(document.getElementById("data").textContent);
const KINDS = { f4: Float32Array, u2: Uint16Array, i4: Int32Array };

function unpack(packed) {
  const text = atob(packed.bytes);
  packed.bytes = "";
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return { ...packed, values: new KINDS[packed.kind](bytes.buffer) };
}

const points = {};
for (const name in report.points) points[name] = unpack(report.points[name]);
const nTarget = report.rows.length;
const nBackground = report.background_rows ? report.background_rows.length : 0;
const nRows = nTarget + nBackground;
const nTargetDims = points.target.shape[1];
const nSharedDims = points.shared.shape[1];
const values = { ...report.values, ...unpack(report.values) };
const MISSING = 65535;

function isTarget(row) { return row < nTarget; }

function rowName(row) {
  return isTarget(row) ? report.rows[row] : report.background_rows[row - nTarget];
}

// One column of a table for the target's rows, followed by one for the background's.
function stacked(target, background, k) {
  const found = new Float32Array(nRows).fill(NaN);
  [[target, 0], [background, nTarget]].forEach(([part, from]) => {
    if (!part) return;
    const [n, width] = part.shape;
    const rows = from ? nBackground : nTarget;
    for (let i = 0; i < rows; i++) found[from + i] = part.values[(n === 1 ? 0 : i) * width + k];
  });
  return found;
}

// Everything that can be an axis: a label, values, and standard deviations where they are known.
// Latents also have a name for the columns of tables.
function lazily(axis, make) {
  let made = null;
  Object.defineProperty(axis, "values", { get: () => (made ??= make()) });
  return axis;
}

function jitter() {
  const found = new Float32Array(nRows);
  for (let i = 0; i < nRows; i++) found[i] = ((i * 2654435761) % 4294967296) / 4294967296;
  return found;
}

const axes = [];
for (let k = 0; k < nTargetDims; k++) {
  const axis = { label: `target ${k + 1}`, column: `target${k + 1}`, std: { part: points.target_std, k, set: "target" } };
  axes.push(lazily(axis, () => stacked(points.target, points.background_target, k)));
}
for (let k = 0; k < nSharedDims; k++) {
  const axis = { label: `shared ${k + 1}`, column: `shared${k + 1}`, std: { part: points.shared_std, k, other: points.background_shared_std } };
  axes.push(lazily(axis, () => stacked(points.shared, points.background_shared, k)));
}

const columns = report.columns.map((column) => column.kind === "number"
  ? { ...column, values: unpack(column.values).values }
  : { ...column, codes: unpack(column.codes).values });
if (nBackground) {
  const codes = new Int32Array(nRows).fill(1, nTarget);
  columns.push({ name: "set", kind: "group", levels: ["target", "background"], codes, sets: true });
}
for (const column of columns) {
  if (column.kind === "number") axes.push({ label: column.name, values: column.values });
}
axes.push(lazily({ label: "(random jitter)", bare: true }, jitter));

function stdOf(axis, row) {
  if (!axis.std) return NaN;
  const part = isTarget(row) ? axis.std.part : axis.std.other;
  if (!part) return NaN;
  const at = part.shape[0] === 1 ? 0 : isTarget(row) ? row : row - nTarget; // one row stands for all
  return part.values[at * part.shape[1] + axis.std.k];
}

function annotation(column, row) {
  if (column.kind === "number") return isNaN(column.values[row]) ? null : shortNumber(column.values[row]);
  return column.codes[row] < 0 ? null : column.levels[column.codes[row]];
}

// Observed value of a feature that the page carries, by its position among those.
function observed(row, j) {
  const code = values.values[row * values.shape[1] + j];
  return code === MISSING ? NaN : values.low[j] + values.step[j] * code;
}

function shortNumber(x, digits = 4) {
  if (!isFinite(x)) return "";
  const size = Math.abs(x);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return x.toExponential(Math.min(2, digits - 1));
  return String(Number(x.toPrecision(digits)));
}

function plural(n, word) { return `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`; }
