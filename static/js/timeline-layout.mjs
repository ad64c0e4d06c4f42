// The timeline's arithmetic: time to places and back, rows, what lies under a point. Touches no page.
// Time on the axis is µs since the run's first phase; with idle time hidden it is the busy time passed until then.

export const ROW = 18;
export const HEAD = 30; // a lane's label and its marks
export const RULER = 22;
export const BUCKETS = 240; // as in app/timeline/run_queries.py

// Pieces of real time that are drawn, each [begin, end, where it begins on the axis]; none: all of it.
export function makeAxis(busy, length) {
  const pieces = [];
  const kept = busy.filter((_, n) => n % 2 === 0).reduce((sum, begin, n) => sum + busy[2 * n + 1] - begin, 0);
  const gap = Math.max(1, kept * 0.004); // a cut is seen as a thin gap
  let at = 0;
  for (let n = 0; n < busy.length; n += 2) {
    pieces.push([busy[n], busy[n + 1], at]);
    at += busy[n + 1] - busy[n] + gap;
  }
  const total = pieces.length ? at - gap : length;
  const find = (value, field) => {
    let low = 0;
    let high = pieces.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (pieces[middle][field] <= value) low = middle;
      else high = middle - 1;
    }
    return pieces[low];
  };
  const place = (time) => {
    if (!pieces.length) return time;
    const [begin, end, on] = find(time, 0);
    return on + Math.max(0, Math.min(time, end + gap / 2) - begin);
  };
  const time = (on) => {
    if (!pieces.length) return on;
    const [begin, end, start] = find(on, 2);
    return Math.min(begin + Math.max(0, on - start), end);
  };
  return { total: Math.max(1, total), place, time, cuts: pieces.slice(1).map(([, , on]) => on - gap / 2) };
}

// Lanes one below the other: where each begins and how high all of them are. All of a folded process share one row.
export function stackLanes(lanes, folded) {
  let y = RULER;
  const tops = [];
  lanes.forEach((lane, n) => {
    if (n && folded.has(lane.process) && lanes[n - 1].process === lane.process) {
      tops.push(tops[n - 1]);
      return;
    }
    tops.push(y);
    y += HEAD + (folded.has(lane.process) ? 1 : lane.rows) * ROW;
  });
  return { tops, height: y };
}

// Flat lists to rectangles: name, begin, end, depth, key, whether its end is known, lane and parent.
export function unfold(lanes) {
  const found = [];
  lanes.forEach((lane, laneNumber) => {
    const open = [];
    const { spans } = lane;
    for (let n = 0; n < spans.length; n += 5) {
      const [name, begin, duration, depth, key] = spans.slice(n, n + 5);
      const ended = duration >= 0;
      const end = ended ? begin + duration : Math.max(lane.last, begin);
      while (open.length && (open.at(-1).depth >= depth || open.at(-1).end < end)) open.pop();
      const it = { name, begin, end, depth, key, ended, lane: laneNumber, parent: open.at(-1) ?? null };
      open.push(it);
      found.push(it);
    }
  });
  return found;
}

export function hit(rects, x, y) {
  for (let n = rects.length - 1; n >= 0; n -= 1) {
    const it = rects[n];
    if (y >= it.y && y < it.y + it.h && x >= it.x - 1 && x <= it.x + it.w + 1) return it;
  }
  return null;
}

// Zoom by a factor around a place of the axis; never beyond the whole or below 20 µs.
export function zoom(view, factor, around, total) {
  const width = Math.min(total, Math.max(20, (view.to - view.from) * factor));
  const share = (around - view.from) / (view.to - view.from);
  return clamp(around - share * width, width, total);
}

export function clamp(from, width, total) {
  const start = Math.max(0, Math.min(from, total - width));
  return { from: start, to: start + width };
}

const CLOCK_S = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200];

export function ticks(view, most) {
  const rough = (view.to - view.from) / Math.max(2, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const round = Math.max(1, power * [1, 2, 5, 10].find((it) => it * power >= rough));
  const step = rough <= 5e6 ? round : (CLOCK_S.find((it) => it * 1e6 >= rough) ?? Math.ceil(rough / 8.64e10) * 86_400) * 1e6;
  const found = [];
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) found.push(at);
  return { step, found };
}

// As app/core/format.py writes durations; `step` keeps as many digits as neighbouring ticks need.
export function duration(us, step = 0) {
  if (step && us < 0.5) return "0";
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  if (us >= 5.995e7) {
    const seconds = Math.round(us / 1e6);
    const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, two(seconds % 60)];
    if (step && step % 6e7) return hours ? `${hours} h ${two(minutes)} min ${rest} s` : `${minutes} min ${rest} s`;
    if (step) return hours ? `${hours} h ${two(minutes)} min` : `${minutes} min`;
    return hours ? `${hours} h ${two(minutes)} min` : `${minutes} min ${rest} s`;
  }
  const [divisor, unit] = us >= 999_500 ? [1e6, "s"] : us >= 999.5 ? [1e3, "ms"] : [1, "µs"];
  const value = us / divisor;
  const digits = step ? Math.max(0, -Math.floor(Math.log10(step / divisor))) : value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(unit === "µs" ? 0 : Math.min(digits, 6))} ${unit}`;
}
