// One task: state, why it doesn't advance, steps, live timeline, and commands.

import { askExactly, follow, taskPath } from './api.js';
import { commands } from './commands.js';
import { duration, el, fill, instant, json, state, table, terms } from './dom.js';

const stepColumns = [
  { head: 'Step', kind: 'name', cell: (s) => s.id },
  { head: 'State', cell: (s) => state(s.state) },
  { head: 'Attempt', kind: 'number', cell: (s) => (s.attempt ? String(s.attempt) : '') },
  { head: 'Failures', kind: 'number', cell: (s) => (s.failure_count ? String(s.failure_count) : '') },
  { head: 'Agent', kind: 'name', cell: (s) => `${s.agent} ${s.operation}` },
  { head: 'Started', cell: (s) => instant(s.started_at, true) },
  { head: 'Ended', cell: (s) => instant(s.ended_at, true) },
  { head: 'Undo', cell: (s) => s.undo && state(s.undo.state) },
  { head: 'Error', kind: 'text', cell: (s) => said(s.undo?.error ?? s.error) },
];

const lineColumns = [
  { head: 'Seq', kind: 'number', cell: (l) => String(l.seq) },
  { head: 'At', cell: (l) => instant(l.at, true) },
  { head: 'After', kind: 'number', cell: (l) => duration(l.after) },
  { head: 'Event', kind: 'name', cell: (l) => eventName(l.type) },
  { head: 'Step', kind: 'name', cell: (l) => l.step },
  { head: 'Attempt', kind: 'number', cell: (l) => (l.attempt ? String(l.attempt) : '') },
  { head: 'Took', kind: 'number', cell: (l) => duration(l.took) },
  { head: 'Offset', kind: 'number', cell: (l) => `${l.partition}/${l.offset}` },
  { head: 'Details', kind: 'text', cell: (l) => el('details', {}, el('summary', {}, summary(l)), json(l.data)) },
];

export function task(id, signal) {
  const [notice, head, why, steps, unreadable, lines, input, actions] = Array.from({ length: 8 }, () => el('div'));
  let last = '';
  let seen = '';
  let followAgain = () => {};
  const all = el('div', { hidden: true }, head, actions, why, el('h2', {}, 'Steps'), steps, el('h2', {}, 'Timeline'), unreadable, lines, input);
  return {
    title: id,
    content: el('div', {}, notice, all),
    async refresh() {
      const [t, w, line] = await Promise.all(['', '/why', '/timeline'].map((below) => askExactly(taskPath(id, below), {}, signal)));
      const now = JSON.stringify([t, w, line.lines]);
      if (now === seen) return; // keeps opened details open
      seen = now;
      all.hidden = false;
      fill(head, summaryOf(t));
      fill(actions, commands(t, (what) => {
        fill(notice, el('p', { class: 'notice' }, what));
        if (t.state === 'processed') followAgain(); // it is open again
      }));
      fill(why, whyOf(w));
      fill(steps, table(stepColumns, t.steps, 'No steps.'));
      fill(unreadable, (line.unreadable ?? []).map((p) => el('p', { class: 'problem' }, `The record at ${p.partition}/${p.offset} is unreadable: ${p.error}`)));
      fill(lines, table(lineColumns, measured(line.lines), 'No events.'));
      fill(input, el('h2', {}, 'Input'), json(t.input), t.output != null && [el('h2', {}, 'Output'), json(t.output)]);
    },
    async follow(changed) {
      followAgain = () => this.follow(changed).catch(changed);
      last = await follow(taskPath(id, '/events'), last, changed, signal);
    },
  };
}

function summaryOf(t) {
  return terms([
    ['State', state(t.state)],
    ['Workflow', `${t.workflow}/${t.version}`],
    ['Error', said(t.error)],
    ['Submitted', instant(t.submitted_at)],
    ['Updated', instant(t.updated_at)],
    ['Complete by', instant(t.complete_by)],
    ['Failures', t.failure_count ? String(t.failure_count) : ''],
    ['Labels', Object.entries(t.labels).map(([k, v]) => `${k}=${v}`).join(' ')],
    ['Replies to', t.reply_to],
    ['Scheduler', t.locked_by],
  ]);
}

function whyOf(w) {
  if (!w.reason || w.reason === 'ended') return null;
  return [el('h2', {}, 'Why it doesn\'t advance'), terms([
    ['Reason', w.step ? `${w.reason}, step ${w.step}` : w.reason],
    ['Since', instant(w.since)],
    ['Until', instant(w.until)],
    ['Error', said(w.error)],
    ['Unblocked by', w.moves],
  ])];
}

/** Adds to each line the time since the first one, and to the end of an attempt its duration. */
function measured(lines) {
  const began = new Map();
  const first = lines.length > 0 ? Date.parse(lines[0].at) : 0;
  return lines.map((l) => {
    const at = Date.parse(l.at);
    const name = eventName(l.type);
    const attempt = `${name.split('.')[0]} ${l.step} ${l.attempt}`;
    const took = began.has(attempt) && ended.test(name) ? at - began.get(attempt) : null;
    if (name.endsWith('.started')) began.set(attempt, at);
    return { ...l, after: at - first, took };
  });
}

const ended = /\.(completed|failed|rejected|expired)$/;

const eventName = (type) => type.replace(/^waybill\./, '').replace(/\.v\d+$/, '');
const said = (error) => error && [error.code, error.message].filter(Boolean).join(': ');

/** A summary of an event. */
function summary(line) {
  const d = line.data;
  if (d == null) return '';
  const waits = d.due && Date.parse(d.due) > Date.parse(line.at);
  const why = d.why === undefined ? '' : `: ${d.why}`; // a signal has no reason
  const parts = [said(d.error), d.progress !== undefined && `progress ${JSON.stringify(d.progress)}`, d.name && `signal ${d.name}`, d.by && `by ${d.by}${why}`, d.by_claimed && `by ${d.by_claimed} (claimed)${why}`, d.instance && `instance ${d.instance}`, waits && ['until ', instant(d.due, true)]].filter(Boolean);
  if (parts.length === 0) return `cause ${d.cause}`;
  return parts.map((part, i) => [i > 0 && '; ', part]);
}
