// What the page reads of the events of a task: names, durations, summaries. No state is computed here.

import { errorText } from './parts.js';
import { localText } from './format.js';
import { read } from './json.js';
import { becameTexts } from './texts.js';

/** The name of an event without its prefix and its version. */
export const eventName = (type) => type.replace(/^waybill\./, '').replace(/\.v\d+$/, '');

const datas = new WeakMap();

/** The data of a line, as far as the page reads it itself. */
export function dataOf(line) {
  if (!line.data) return {};
  if (!datas.has(line)) datas.set(line, read(line.data) ?? {});
  return datas.get(line);
}

const ended = /\.(completed|failed|rejected|expired|repeated)$/;
const looks = [[/task\.held|errored|\.failed|rejected|expired/, 'failed'], [/processed|completed|caught/, 'good'], [/waiting/, 'waiting'], [/undoing|^undo\./, 'undoing'],
  [/cancelled|skipped/, 'cancelled'], [/undone|released/, 'undone'], [/started|progressed|repeated|signalled/, 'busy']];

/** The look of an event by its name: a colour and an icon. */
export const lookOfEvent = (name) => (name === 'task.held' ? 'held' : looks.find(([re]) => re.test(name))?.[1] ?? 'pending');

/** Adds to each line its name, the time since the first one, and to the end of an attempt its duration. */
export function measured(lines) {
  const began = new Map();
  const first = lines.length > 0 ? Date.parse(lines[0].at) : 0;
  return lines.map((l) => {
    const ms = Date.parse(l.at);
    const name = eventName(l.type);
    const attempt = `${name.split('.')[0]} ${l.step} ${l.attempt}`;
    const took = began.has(attempt) && ended.test(name) ? ms - began.get(attempt) : null;
    if (name.endsWith('.started')) began.set(attempt, ms);
    return { line: l, name, ms, after: ms - first, took };
  });
}

/** A summary of an event. */
export function summary(line) {
  const d = dataOf(line);
  const waits = d.due && Date.parse(d.due) > Date.parse(line.at);
  const why = d.why === undefined ? '' : `: ${d.why}`; // a signal has no reason
  const parts = [errorText(d.error), d.became && `found: ${becameTexts[d.became] ?? d.became}`, d.progress !== undefined && `progress ${d.progress?.text ?? 'null'}`, d.name && `signal ${d.name}`, d.by && `by ${d.by}${why}`,
    d.by_claimed && `by ${d.by_claimed} (claimed)${why}`, d.effect === 'unknown' && 'may have happened', d.instance && `instance ${d.instance}`, waits && `until ${localText(d.due, true)}`].filter(Boolean);
  return parts.length === 0 ? `cause ${d.cause}` : parts.join('; ');
}
