// One task: its header with why it doesn't advance, commands, graph, course, events with a slider, and data.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { taskPath } from './api.js';
import { Commands } from './commands.js';
import { Predicted } from './deadlines.js';
import { coarse, now, relativeText } from './format.js';
import { Gantt } from './gantt.js';
import { Graph } from './graph.js';
import { html } from './html.js';
import { Chain, Elsewhere, Facts, Steps, isChecked, stateOf } from './taskparts.js';
import { Events } from './eventlist.js';
import { measured } from './lines.js';
import { Guard } from './components.js';
import { parse } from './json.js';
import { Later } from './later.js';
import { onTask, useAnswer } from './live.js';
import { Copy, ErrorText, Instant, Json, Loading, State, TaskLink, Trouble } from './parts.js';
import { replaceAddress, route, taskAddress, tasksAddress } from './route.js';
import { Slider } from './slider.js';
import { becameTexts, reasons } from './texts.js';

const pace = 300; // ms between two requests, while events come

/** The path of a task, or why a browser can't request it. */
function pathOf(id) {
  try {
    return [taskPath(id), ''];
  } catch (e) {
    return [null, e.message];
  }
}

export function Task({ id }) {
  const [path, refused] = pathOf(id);
  const below = (name) => path && `${path}/${name}`;
  const on = onTask(id);
  const predicted = useRef(false); // time changes a prediction
  const t = useAnswer(path, {}, { pace, on, aging: predicted.current ? 10_000 : undefined });
  predicted.current = Boolean(t.data?.prediction);
  const w = useAnswer(below('why'), {}, { pace, on: (c) => on(c) || c.what.includes('agents') });
  const timeline = useAnswer(below('timeline'), {}, { pace, on, more: laterLines });
  const commands = useAnswer(below('commands'), {}, { pace, optional: true, on });
  const graph = useAnswer(below('graph'), {}, { optional: true, once: true });
  const [notice, setNotice] = useState(null); // [class, text]
  const [step, setStep] = useState(null);
  const lines = useMemo(() => measured(timeline.data?.lines ?? []), [timeline.data]);
  const { params } = route.value;
  const seq = Number(params.get('seq')) || null;
  const forkAt = Number(params.get('fork')) || 0;
  const states = useHistory(path, seq);
  const problem = refused || t.problem || w.problem || timeline.problem;
  const done = (what) => {
    setNotice(['notice', what]);
    for (const a of [t, w, timeline, commands]) a.refresh();
  };
  if (!t.data) return html`<h1 class="id">${id}</h1><${Trouble} text=${problem} />${!problem && html`<${Loading} what="the task" />`}`;
  const task = t.data;
  const then = seq && states.data?.state ? states.data.state : task;
  const at = seq ? lines.find((l) => l.line.seq === seq)?.ms : undefined;
  const choose = (name) => {
    setStep(name);
    const row = document.querySelector(`[data-step=${CSS.escape(name)}]`);
    row?.scrollIntoView({ block: 'nearest' });
    row?.focus({ preventScroll: true });
  };
  return html`
    <${Head} task=${task} why=${w.data} path=${path} events=${lines.length} />
    <${Trouble} text=${problem} />
    <div><div role="status">${notice && html`<p class=${notice[0]}>${notice[1]}</p>`}</div>
      <${Commands} task=${task} answer=${commands.data} done=${done} refused=${(why) => setNotice(['problem', `Refused: ${why}`])} /></div>
    <section aria-label="Graph"><div class="title"><h2>Steps</h2>${seq && html`<span class="then">as of event ${seq}</span>`}</div>
      <${Guard}>${graph.data && html`<${Graph} graph=${graph.data.graph} stateOf=${(s) => stateOfStep(then, s)} notesOf=${(s) => noteOfStep(then, s)} choose=${choose} chosen=${step} />`}<//>
      <${Guard}><${Gantt} lines=${lines} steps=${graph.data?.graph.steps ?? task.steps} task=${task} at=${at} choose=${choose} /><//></section>
    <${Slider} lines=${lines} seq=${seq} answer=${states} go=${(n) => replaceAddress(taskAddress(id, { seq: n }))} fork=${() => replaceAddress(taskAddress(id, { seq, fork: seq ?? lines.at(-1).line.seq }))} />
    ${forkAt > 0 && lines.length > 0 && html`<${Later} key="fork" load=${() => import('./fork.js')} of="Fork" task=${task} path=${path} lines=${lines} at=${forkAt} version=${params.get('version') === 'draft' ? 'draft' : Number(params.get('version')) || 0} assume=${params.get('assume') ?? ''}
      rerun=${(from, version, assume) => replaceAddress(taskAddress(id, { seq, fork: from, version, assume }))} close=${() => replaceAddress(taskAddress(id, { seq }))} />`}
    <${Steps} task=${then} chosen=${step} />
    ${task.steps.some((s) => s.child || s.items) && html`<${Later} load=${() => import('./family.js')} of="Family" task=${task} path=${path} />`}
    <${Events} lines=${lines} unreadable=${timeline.data?.unreadable ?? []} seq=${seq} step=${step} clear=${() => setStep(null)} id=${id} />
    <section><h2>Input</h2><${Json} raw=${task.input} label="Input" />${task.output != null && html`<h2>Output</h2><${Json} raw=${task.output} label="Output" />`}</section>
    <${Elsewhere} task=${task} path=${path} />`;
}

const stateOfStep = (task, id) => {
  const s = task.steps.find((x) => x.id === id);
  if (s?.undo && s.undo.state !== 'completed') return s.undo.state === 'error' ? stateOf(task, s.undo) : 'undoing';
  return isChecked(s) ? 'checking' : stateOf(task, s);
};

function noteOfStep(task, id) {
  const s = task.steps.find((x) => x.id === id);
  if (isChecked(s)) return `being checked, ${s.agent ?? ''}`;
  if (s?.check?.became && s.state !== 'completed') return `checked: ${becameTexts[s.check.became] ?? s.check.became}`;
  if (!s?.attempt || s.attempt < 2) return undefined;
  return `attempt ${s.attempt}${s.error ? `, ${s.error.code}` : ''}`;
}

/** The answer of states?seq=. While it is on its way, the last one stays, and no other is asked for: a slider that is dragged passes many events. */
function useHistory(path, seq) {
  const [asked, setAsked] = useState(seq);
  const answer = useAnswer(asked && path && `${path}/states`, { seq: asked }, { optional: true, once: true });
  const last = useRef(null);
  const came = Boolean(answer.data || answer.problem || answer.absent);
  useEffect(() => {
    if (seq !== asked && (came || !asked || !seq)) setAsked(seq);
  }, [seq, asked, came]);
  if (!seq) last.current = null;
  else if (answer.data) last.current = answer.data;
  return { ...answer, data: last.current };
}

/** Later requests for a timeline ask only for the events that came since. */
const laterLines = {
  query: ({ lines }) => ({ after: lines.at(-1)?.seq }),
  join(known, came) {
    const last = known.lines.at(-1)?.seq ?? 0;
    if (came.lines.length > 0 && came.lines[0].seq !== last + 1) return null;
    const more = came.unreadable.filter((u) => !known.unreadable.some((x) => x.offset === u.offset));
    if (came.lines.length === 0 && more.length === 0) return known;
    return { ...came, lines: [...known.lines, ...came.lines], unreadable: [...known.unreadable, ...more] };
  },
};

function Head({ task, why, path, events }) {
  return html`<div class="head">
    <p class="crumb"><a href="#/tasks">Tasks</a> / ${task.parent && html`<${TaskLink} id=${task.parent.task} /> / `}<a href=${`#/workflows/${encodeURIComponent(task.workflow)}/${task.version}`}>${task.workflow}/${task.version}</a></p>
    <div class="title"><h1 class="id">${task.id}</h1><${Copy} text=${task.id} label="Copy the id" /><${State} name=${task.state} big /><${Chain} path=${path} events=${events} /></div>
    <${Why} task=${task} why=${why} />
    <${Deadline} task=${task} />
    <${Facts} task=${task} />
  </div>`;
}

/** Why a task doesn't advance, as one sentence, and what would unblock it. */
function Why({ task, why }) {
  if (!why || !why.reason || why.reason === 'ended') return task.error && html`<p class="why"><${ErrorText} error=${task.error} /></p>`;
  const sentence = (reasons[why.reason] ?? ((at) => `${why.reason}${at}.`))(why.step ? ` at step ${why.step}` : '');
  return html`<div class="why"><p><b>${sentence}</b> ${why.since && html`<span class="quiet">For ${coarse(Math.max(0, now.value - Date.parse(why.since)))}, since <${Instant} at=${why.since} />.</span>`}
    ${why.until && html` <span class="quiet">Until <${Instant} at=${why.until} />, ${relativeText(why.until)}.</span>`}</p>
    ${why.error && html`<p><${ErrorText} error=${why.error} /></p>`}
    ${task.error_group && html`<p><a href=${tasksAddress(`error_group:${task.error_group}`)}>Tasks held by the same cause</a></p>`}
    ${why.moves && html`<p class="quiet">Unblocked by: ${why.moves} <code class="reason">${why.reason}</code></p>`}</div>`;
}

/** A bar from the submission to complete-by, with the time that is left, or by how much it was kept or missed. */
function Deadline({ task }) {
  if (!task.complete_by || !task.submitted_at) return null;
  const [from, by] = [Date.parse(task.submitted_at), Date.parse(task.complete_by)];
  const open = !['processed', 'undone', 'cancelled'].includes(task.state);
  const at = open ? now.value : Date.parse(task.updated_at);
  const share = Math.min(1, Math.max(0, (at - from) / Math.max(1, by - from)));
  const left = by - at;
  const text = open ? (left > 0 ? `${coarse(left)} left` : `${coarse(-left)} past its complete-by`) : left > 0 ? `ended ${coarse(left)} before its complete-by` : `ended ${coarse(-left)} after its complete-by`;
  return html`<div class=${`due${left <= 0 ? ' late' : share > 0.8 && open ? ' soon' : ''}`}><div class="bar" aria-hidden="true"><i style=${{ width: `${share * 100}%` }}></i></div>
    <span>${text} <span class="quiet">(<${Instant} at=${task.complete_by} />)</span></span><${Predicted} prediction=${task.prediction} by=${task.complete_by} /></div>`;
}
