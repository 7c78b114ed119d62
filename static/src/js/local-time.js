// `<time datetime data-behaviour="local-time" data-format="...">`: the server writes UTC, this
// shows the reader's zone, and keeps "10 min" and "2 h 22 min" true while the page is open.
const elements = new Set();
export const timeZone = known(document.documentElement.dataset.timeZone);
const clock = new Intl.DateTimeFormat(undefined, {
  timeZone,
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const minute = new Intl.DateTimeFormat(undefined, {
  timeZone,
  hour: "2-digit",
  minute: "2-digit",
  hourCycle: "h23",
});
const day = new Intl.DateTimeFormat(undefined, { timeZone, day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat(undefined, {
  timeZone,
  dateStyle: "medium",
  timeStyle: "long",
});

// The zone in the person's settings, where this browser knows it; else the browser's own.
function known(zone) {
  if (!zone) return undefined;
  try {
    return new Intl.DateTimeFormat(undefined, { timeZone: zone }).resolvedOptions().timeZone;
  } catch {
    return undefined;
  }
}

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(whole / unit));
  if (days) return `${days} d ${hours % 24} h`;
  if (hours) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return minutes ? `${minutes} min` : `${whole} s`;
}

// A moment to come, as exact as anybody knows it: the day where it is not today.
function moment(at) {
  const isToday = day.format(at) === day.format(Date.now());
  return isToday ? minute.format(at) : `${day.format(at)}, ${minute.format(at)}`;
}

function show(element) {
  const at = new Date(element.dateTime);
  const since = duration((Date.now() - at) / 1000);
  const texts = {
    clock: () => clock.format(at),
    moment: () => moment(at),
    since: () => since,
    ago: () => `${since} ago`,
  };
  const text = (texts[element.dataset.format] ?? texts.ago)();
  if (element.textContent !== text) element.textContent = text;
  element.title = full.format(at);
}

setInterval(() => {
  for (const element of elements) {
    if (element.isConnected) show(element);
    else elements.delete(element);
  }
}, 1000);

export default function localTime(element) {
  elements.add(element);
  show(element);
}
