// A line chart over time: drawn as SVG, read by pointer, by arrow keys and by ear.
//
//     const throughput = chart({ title: "Throughput", format: rate,
//                                series: [{ name: "published", key: "messages_in" }] });
//     throughput.update(samples);          // [{ time, messages_in, ... }], oldest first
//
// The text alternative says what an eye takes in at once: now, lowest, highest, since when.

import { h, replace, s, say } from "./dom.js";
import { clock, zonedClock } from "./format.js";

const HEIGHT = 190;
const PAD = { left: 44, right: 6, top: 8, bottom: 22 };
// How much time is drawn: what there is, within these bounds.
const SPAN_MS_MIN = 60_000;
const SPAN_MS_MAX = 5 * 60_000;
// Samples that are further apart were not taken one after the other: the line breaks.
const GAP_MS = 15_000;

export function chart({ title, series, format }) {
  const picture = s("svg", { role: "img", tabindex: "0", "aria-label": title, height: HEIGHT });
  const readout = h("div", { class: "readout", hidden: true });
  const legend = h("ul", { class: "legend" });
  const live = h("p", { class: "hidden-visually", "aria-live": "polite" });
  const holder = h("div", { class: "chart" }, picture, readout);
  const element = h(
    "section",
    { class: "panel-body" },
    h("div", { class: "chart-head" }, h("h2", {}, title), legend),
    holder,
    live,
  );
  const colors = series.map((each, index) => each.color ?? `s-${index + 1}`);
  const values = series.map((each, index) => {
    const value = h("b", {}, "–");
    legend.append(h("li", {}, h("span", { class: `dot ${colors[index]}` }), each.name, " ", value));
    return value;
  });
  let samples = [];
  let shown = null;
  let width = 600;

  function update(next) {
    samples = next;
    const last = samples.at(-1);
    series.forEach((each, index) => say(values[index], last ? format(last[each.key]) : "–"));
    picture.setAttribute("aria-label", summary(title, series, samples, format));
    draw();
  }

  function draw() {
    const frame = frameOf(samples, series, width);
    const parts = [grid(frame, format)];
    if (samples.length > 1) {
      series.forEach((each, index) => parts.push(lines(frame, each.key, colors[index])));
    } else {
      const words = "Waiting for the first samples…";
      parts.push(s("text", { class: "waiting", x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, words));
    }
    if (shown !== null && samples[shown]) parts.push(marks(frame, samples[shown]));
    picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    replace(picture, parts);
  }

  function marks(frame, sample) {
    const x = frame.x(sample.at);
    return [
      s("line", { class: "guide", x1: x, x2: x, y1: PAD.top, y2: HEIGHT - PAD.bottom }),
      series.map((each, index) => sample[each.key] !== null &&
        s("circle", { class: `point ${colors[index]}`, cx: x, cy: frame.y(sample[each.key]), r: 4 }),
      ),
    ];
  }

  function show(index, aloud = false) {
    shown = index === null ? null : Math.max(0, Math.min(samples.length - 1, index));
    draw();
    readout.hidden = shown === null || !samples[shown];
    if (readout.hidden) return;
    const sample = samples[shown];
    replace(
      readout,
      h("div", { class: "muted" }, zonedClock(sample.time)),
      series.map((each, number) =>
        h("div", { class: "row" }, h("span", { class: `dot ${colors[number]}` }), each.name, h("b", {}, format(sample[each.key]))),
      ),
    );
    const at = (frameOf(samples, series, width).x(sample.at) / width) * holder.clientWidth;
    const left = at > holder.clientWidth / 2 ? at - readout.offsetWidth - 12 : at + 12;
    readout.style.left = `${Math.max(0, left)}px`;
    if (aloud) say(live, `${zonedClock(sample.time)}: ${series.map((each) => `${each.name} ${format(sample[each.key])}`).join(", ")}`);
  }

  function nearest(event) {
    const box = picture.getBoundingClientRect();
    const frame = frameOf(samples, series, width);
    const wanted = ((event.clientX - box.left) / box.width) * width;
    let best = null;
    samples.forEach((each, index) => {
      const away = Math.abs(frame.x(each.at) - wanted);
      if (best === null || away < best.away) best = { index, away };
    });
    return best && best.index;
  }

  picture.addEventListener("pointermove", (event) => show(nearest(event)));
  picture.addEventListener("pointerleave", () => show(null));
  picture.addEventListener("blur", () => show(null));
  picture.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -samples.length, End: samples.length };
    if (!(event.key in steps) || !samples.length) return;
    event.preventDefault();
    show((shown ?? samples.length - 1) + steps[event.key], true);
  });
  new ResizeObserver(([entry]) => {
    width = Math.max(200, Math.round(entry.contentRect.width));
    draw();
  }).observe(holder);
  return { element, update };
}

function frameOf(samples, series, width) {
  const end = samples.at(-1)?.at ?? 0;
  const known = end - (samples[0]?.at ?? 0);
  const spanMs = Math.max(SPAN_MS_MIN, Math.min(SPAN_MS_MAX, known));
  const begin = end - spanMs;
  const visible = samples.filter((each) => each.at >= begin);
  const top = nice(Math.max(0, ...visible.flatMap((each) => series.map(({ key }) => each[key] ?? 0))));
  const across = width - PAD.left - PAD.right;
  const down = HEIGHT - PAD.top - PAD.bottom;
  return {
    visible, top, begin, end, width,
    x: (at) => PAD.left + ((at - begin) / spanMs) * across,
    y: (value) => PAD.top + down - (value / top) * down,
  };
}

// The next number at or above that is round, and whose half is round too.
export function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

function grid(frame, format) {
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    const y = frame.y(frame.top * share);
    parts.push(s("line", { class: "grid", x1: PAD.left, x2: frame.width - PAD.right, y1: y, y2: y }));
    parts.push(s("text", { class: "axis", x: PAD.left - 8, y: y + 4, "text-anchor": "end" }, format(frame.top * share)));
  }
  if (frame.end) {
    const step = frame.end - frame.begin > 150_000 ? 60_000 : 20_000;
    for (let at = Math.ceil(frame.begin / step) * step; at <= frame.end; at += step) {
      const x = frame.x(at);
      if (x < PAD.left + 14 || x > frame.width - 14) continue;
      const words = step < 60_000 ? clock(at) : clock(at).slice(0, 5);
      parts.push(s("text", { class: "axis", x, y: HEIGHT - 5, "text-anchor": "middle" }, words));
    }
  }
  return parts;
}

function lines(frame, key, color) {
  const floor = HEIGHT - PAD.bottom;
  return pieces(frame.visible, key).map((piece) => {
    const points = piece.map((each) => `${frame.x(each.at).toFixed(1)} ${frame.y(each[key]).toFixed(1)}`);
    const first = frame.x(piece[0].at).toFixed(1);
    const last = frame.x(piece.at(-1).at).toFixed(1);
    const path = `M${points.join("L")}`;
    return [
      s("path", { class: `area ${color}`, d: `${path}L${last} ${floor}L${first} ${floor}Z` }),
      s("path", { class: `line ${color}`, d: path }),
    ];
  });
}

// Runs of samples without a gap, and without one where nothing was measured.
function pieces(samples, key) {
  const found = [];
  let last = null;
  for (const each of samples.filter((sample) => sample[key] !== null)) {
    if (last === null || each.at - last.at > GAP_MS) found.push([]);
    found.at(-1).push(each);
    last = each;
  }
  return found;
}

export function summary(title, series, samples, format) {
  if (!samples.length) return `${title}: no samples yet`;
  const parts = series.map(({ name, key }) => {
    const values = samples.map((each) => each[key]).filter((each) => each !== null);
    if (!values.length) return `${name}: nothing measured`;
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return `${name} now ${format(values.at(-1))}, between ${format(low)} and ${format(high)}`;
  });
  return `${title} since ${zonedClock(samples[0].time)}: ${parts.join("; ")}`;
}

// A line as small as a word; the number beside it says the same.
export function spark(values, tone = "") {
  const width = 120;
  const height = 26;
  const top = Math.max(...values, 1e-9);
  const step = values.length > 1 ? width / (values.length - 1) : width;
  const points = values.map((value, index) => `${(index * step).toFixed(1)} ${(height - 2 - (value / top) * (height - 4)).toFixed(1)}`);
  const path = points.length ? `M${points.join("L")}` : "";
  return h(
    "div",
    { class: `spark ${tone}`, "aria-hidden": "true" },
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" },
      s("path", { class: "area", d: path && `${path}L${width} ${height}L0 ${height}Z` }),
      s("path", { class: "line", d: path, "vector-effect": "non-scaling-stroke" }),
    ),
  );
}
