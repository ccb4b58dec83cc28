// Numbers, sizes and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function count(number) {
  return number === null || number === undefined ? "–" : whole.format(number);
}

// At most four characters and a letter: 950, 12.4k, 3.1M.
export function short(number) {
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(number) >= size * 0.9995) {
      const shown = number / size;
      return `${shown >= 100 ? Math.round(shown) : trim(shown.toFixed(1))}${letter}`;
    }
  }
  return trim(number < 10 ? number.toFixed(1) : String(Math.round(number)));
}

function trim(text) {
  return text.endsWith(".0") ? text.slice(0, -2) : text;
}

export function rate(number) {
  return `${short(number)}/s`;
}

export function bytes(number) {
  let unit = 0;
  let left = number;
  while (left >= 1024 && unit < UNITS.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit && left < 100 ? trim(left.toFixed(1)) : Math.round(left)} ${UNITS[unit]}`;
}

export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  const size = Math.abs(milliseconds);
  if (size < 1000) return `${size < 10 ? trim(size.toFixed(1)) : Math.round(size)} ms`;
  const seconds = Math.floor(size / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return pair(seconds, 60, "min", "s");
  if (seconds < 86400) return pair(Math.floor(seconds / 60), 60, "h", "min");
  return pair(Math.floor(seconds / 3600), 24, "d", "h");
}

// For how long something has waited, where anything does.
export function waited(seconds) {
  return seconds === null ? "–" : duration(1000 * seconds);
}

function pair(number, base, large, small) {
  const rest = number % base;
  return `${Math.floor(number / base)} ${large}${rest ? ` ${rest} ${small}` : ""}`;
}

// "12 s ago", "in 3 min".
export function relative(moment, now = Date.now()) {
  if (!moment) return "–";
  const away = new Date(moment).getTime() - now;
  if (Math.abs(away) < 1000) return "now";
  return away < 0 ? `${duration(away)} ago` : `in ${duration(away)}`;
}

// For the ticks of a chart, where there is no room for a zone.
export function clock(moment) {
  return new Date(moment).toLocaleTimeString("en-GB");
}

const pad = (number, width = 2) => String(number).padStart(width, "0");

// How far this browser's time is from UTC at a moment: "UTC", "+02:00".
export function zone(moment = Date.now()) {
  const minutes = -new Date(moment).getTimezoneOffset();
  if (!minutes) return "UTC";
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${pad(Math.floor(size / 60))}:${pad(size % 60)}`;
}

// "14:03:07 +02:00"
export function zonedClock(moment) {
  return `${clock(moment)} ${zone(moment)}`;
}

// A moment in this browser's time, which is the one its reader lives by, and in which one
// that is.
export function moment(text) {
  if (!text) return "–";
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return text;
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)} ${zone(at)}`;
}

// The same moment in UTC, as logs and other machines have it.
export function utc(text) {
  const at = new Date(text ?? NaN);
  return Number.isNaN(at.getTime()) ? "" : at.toISOString();
}

export function plural(number, noun, many = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : many}`;
}

// A setting's value: times and sizes say what they are by their names.
export function setting(name, value) {
  if (value === null || value === undefined) return "none";
  if (typeof value === "number" && name.endsWith("_ms")) return `${duration(value)} (${count(value)})`;
  if (typeof value === "number" && /bytes/.test(name)) return `${bytes(value)} (${count(value)})`;
  // A share such as 0.01 would be shown as 0.
  if (typeof value === "number") return Number.isInteger(value) ? count(value) : String(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "string" ? value || "none" : JSON.stringify(value);
}
