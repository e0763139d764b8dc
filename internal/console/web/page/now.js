// What is wrong now, since when, and what to do.

import { useRef } from 'preact/hooks';
import { html } from './html.js';
import { Chart } from './chart.js';
import { Groups } from './groups.js';
import { countText, durationText, shareText } from './format.js';
import { useAnswer } from './live.js';
import { Empty, Incomplete, Instant, Loading, State, Table, Trouble } from './parts.js';
import { address, tasksAddress, term } from './route.js';
import { Spans, span } from './spans.js';
import { taskStates } from './texts.js';

const partitionColumns = [
  { head: 'Partition', kind: 'number', cell: (p) => String(p.partition) },
  { head: 'Scheduler', kind: 'name', cell: (p) => p.scheduler ?? html`<span class="error">none</span>` },
  { head: 'Scheduler restored', kind: 'number', cell: (p) => shareText(p.scheduler_restored) },
  { head: 'Lag', kind: 'number', cell: (p) => countText(p.lag) },
  { head: 'Open tasks', kind: 'number', cell: (p) => countText(p.open_tasks) },
  { head: 'Tasks', kind: 'number', cell: (p) => countText(p.tasks) },
  { head: 'Earliest timer', cell: (p) => html`<${Instant} at=${p.oldest_due} />` },
  { head: 'Index restored', kind: 'number', cell: (p) => shareText(p.restored) },
];

export function Now() {
  const w = useAnswer('/workflows', {}, { on: ['workflows', 'tasks'] });
  const a = useAnswer('/agents', {}, { every: 5000, on: ['agents', 'tasks'] });
  const p = useAnswer('/partitions', {}, { every: 5000, on: ['partitions', 'tasks'] });
  const g = useAnswer('/error-groups', { limit: 10 }, { every: 5000, optional: true, on: ['holds'] });
  const open = w.data ? ['pending', 'processing', 'undoing'].reduce((n, x) => n + sum(w.data.workflows, x), 0) : 0;
  const due = useAnswer('/tasks', { filter: 'due_within:5m', page_size: 50 }, { every: 5000, on: ['tasks'], aging: open > 0 ? 30_000 : undefined });
  const soon = useAnswer('/predictions', { will_miss: true }, { every: 5000, optional: true, on: ['tasks'], aging: open > 0 ? 30_000 : undefined });
  const lags = useRef(false); // time moves the chart of the lag
  const lag = useAnswer(a.data && p.data ? '/lag' : null, {}, { every: 10_000, optional: true, on: ['agents', 'partitions'], pace: 10_000, aging: lags.current ? 10_000 : 60_000 });
  lags.current = lag.data?.series.some((x) => x.points.slice(-6).some((n) => n > 0)) ?? false;
  const moves = useRef(false); // time moves what the charts show
  const s = useAnswer('/stats', { from: span.value }, { every: 5000, optional: true, on: ['tasks'], aging: moves.current ? 60_000 : undefined });
  moves.current = s.data?.series[0]?.points.some((q) => q.submitted + q.processed + q.undone + q.cancelled + q.held + q.attempts > 0);
  const problem = w.problem ?? a.problem ?? p.problem ?? g.problem ?? s.problem;
  return html`<${Trouble} text=${problem} /><${Incomplete} answer=${w.data} />
    ${!w.data ? !problem && html`<${Loading} what="the overview" />` : html`
    <${Sentence} workflows=${w.data.workflows} agents=${a.data?.agents} partitions=${p.data?.partitions} groups=${g.data?.groups} due=${due.data} predicted=${soon.data} />
    <${Counts} workflows=${w.data.workflows} />
    ${g.data?.groups.length > 0 && html`<section><div class="title"><h2>Held, by cause</h2><a href="#/held">All</a></div><${Groups} answer=${g.data} /></section>`}
    ${s.data && html`<${Charts} stats=${s.data} lag=${lag.data} />`}
    <section><h2>Agents</h2>${a.data && html`<${Attention} agents=${a.data.agents} />`}</section>
    <section><h2>Workflows</h2><${WorkflowCounts} workflows=${w.data.workflows} /></section>
    <section><h2>Partitions</h2>${p.data && html`<${Strip} partitions=${p.data.partitions} /><details class="more"><summary>Table of the partitions</summary>
      <${Table} label="Partitions" columns=${partitionColumns} rows=${p.data.partitions} keyOf=${(x) => x.partition} none="No partitions." /></details>`}</section>`}`;
}

const sum = (workflows, state) => workflows.reduce((n, w) => n + (w.tasks[state] ?? 0), 0);

/** One sentence: what is wrong, or that nothing is. Each part is a link to it. */
function Sentence({ workflows, agents, partitions, groups, due, predicted }) {
  const held = sum(workflows, 'error');
  const parts = [];
  if (held > 0) {
    const causes = groups && `, ${groups.length} ${groups.length === 1 ? 'cause' : 'causes'}`;
    parts.push(html`<a class="error" href=${groups ? '#/held' : tasksAddress('state:error')}>${countText(held)} held${causes}</a>`);
  }
  for (const x of agents ?? []) {
    if (x.members === 0) parts.push(html`<a class="error" href="#/agents">${x.agent} has no members</a>`);
    else if (x.circuit === 'open') parts.push(html`<a class="error" href="#/agents">the circuit of ${x.agent} is open</a>`);
  }
  const without = (partitions ?? []).filter((x) => !x.scheduler).length;
  if (without > 0) parts.push(html`<span class="error">${without} ${without === 1 ? 'partition has' : 'partitions have'} no scheduler</span>`);
  const soon = due?.tasks.length ?? 0;
  if (soon > 0) parts.push(html`<a class="late" href=${tasksAddress('due_within:5m')}>${soon}${due.next_page_token ? ' or more' : ''} due within 5 minutes or overdue</a>`);
  const misses = predicted?.will_miss ?? 0;
  if (misses > 0) parts.push(html`<a class="late" href="#/deadlines">${countText(misses)}${predicted.looked_at_all ? '' : ' or more'} will miss ${misses === 1 ? 'its' : 'their'} deadline</a>`);
  const open = ['pending', 'processing', 'undoing'].reduce((n, x) => n + sum(workflows, x), 0);
  const rest = html`<span class="quiet">${countText(open)} ${open === 1 ? 'task is' : 'tasks are'} in progress.</span>`;
  if (workflows.length === 0) return html`<p class="sentence">No workflow was applied yet. <span class="quiet">Apply one: <code>waybill workflow apply FILE</code></span></p>`;
  if (parts.length === 0) return html`<p class="sentence"><span class="fine">Nothing needs attention.</span> ${rest}</p>`;
  return html`<p class="sentence">${parts.map((x, i) => [i > 0 && '; ', x])}. ${rest}</p>`;
}

const Counts = ({ workflows }) => html`<ul class="counts">${taskStates.map((s) => html`<li key=${s}><a href=${tasksAddress(`state:${s}`)} class=${`is-${s}`}><b class=${sum(workflows, s) ? '' : 'faint'}>${countText(sum(workflows, s))}</b><${State} name=${s} /></a></li>`)}</ul>`;

/** Charts of all tasks over a time that the reader chooses. */
function Charts({ stats, lag }) {
  const points = stats.series[0]?.points ?? [];
  const x = points.map((q) => Date.parse(q.at) / 1000);
  const of = (name) => points.map((q) => q[name]);
  const ended = points.map((q) => q.processed + q.undone + q.cancelled);
  const latency = (name) => points.map((q) => q.latency?.[name] ?? null);
  return html`<section><div class="title"><h2>Over time</h2><${Spans} /></div>
    <div class="charts">
      <${Chart} title="Submitted and ended" x=${x} series=${[['submitted', of('submitted'), 'busy'], ['ended', ended, 'good']]} />
      <${Chart} title="Held" x=${x} series=${[['held', of('held'), 'held'], ['holds ended', of('holds_ended'), 'undone']]} />
      <${Chart} title="Duration of processed tasks" x=${x} value=${durationText} series=${[['p50', latency('p50_ms'), 'good'], ['p95', latency('p95_ms'), 'waiting']]} />
      <${Chart} title="Attempts that failed" x=${x} series=${[['failures', of('failures'), 'failed'], ['attempts', of('attempts'), 'pending']]} />
      ${lag?.series.length > 0 && html`<${Lag} lag=${lag} />`}
    </div></section>`;
}

const lagLooks = ['busy', 'waiting', 'undoing', 'pending'];

/** The lag that the console has sampled: of the schedulers, and of the agents with the most. */
function Lag({ lag }) {
  const most = (s) => Math.max(0, ...s.points);
  const agents = lag.series.filter((s) => s.agent).sort((a, b) => most(b) - most(a));
  const shown = [...lag.series.filter((s) => !s.agent), ...agents].slice(0, lagLooks.length);
  const x = shown[0].points.map((_, i) => (Date.parse(lag.from) + i * lag.step_ms) / 1000);
  return html`<${Chart} key=${shown.map((s) => s.agent).join(' ')} title="Lag in the last hour, sampled by this console" x=${x} series=${shown.map((s, i) => [s.agent ?? 'schedulers', s.points, lagLooks[i]])} />`;
}

/** Agents; those that need attention first. */
function Attention({ agents }) {
  if (agents.length === 0) return html`<${Empty}>No workflow definition names an agent.<//>`;
  const bad = (x) => x.members === 0 || x.circuit === 'open' || x.circuit === 'half-open';
  const list = [...agents].sort((x, y) => bad(y) - bad(x) || x.agent.localeCompare(y.agent));
  return html`<ul class="cards">${list.map((x) => html`<li key=${x.agent} class=${bad(x) ? 'bad' : ''}><a href=${address(['agents'], { agent: x.agent })}><b>${x.agent}</b> <${State} name=${x.circuit} /></a>
    <span class=${x.members === 0 ? 'error' : 'quiet'}>${x.members === 0 ? 'no members' : `${countText(x.members)} ${x.members === 1 ? 'member' : 'members'}`}</span>
    <span class="quiet">${countText(x.in_flight)} in flight, lag ${countText(x.lag)}</span></li>`)}</ul>`;
}

/** Workflows with their tasks by state. */
export function WorkflowCounts({ workflows }) {
  const of = (w, extra) => tasksAddress(`${term('workflow', `${w.workflow}/${w.version}`)}${extra}`);
  const columns = [
    { head: 'Workflow', kind: 'name', cell: (w) => html`<a data-open href=${address(['workflows', w.workflow, String(w.version)])}>${w.workflow}/${w.version}</a>` },
    { head: 'Steps', kind: 'text', cell: (w) => w.steps.join(', ') },
    ...taskStates.map((s) => ({ head: html`<${State} name=${s} />`, kind: 'number', cell: (w) => (w.tasks[s] ? html`<a href=${of(w, ` state:${s}`)}>${countText(w.tasks[s])}</a>` : html`<span class="faint">0</span>`) })),
  ];
  return html`<${Table} label="Workflows" columns=${columns} rows=${workflows} keyOf=${(w) => `${w.workflow}/${w.version}`} none="No workflow definition was applied yet. Apply one: waybill workflow apply FILE" />`;
}

/** The partitions as a strip: one cell each, its height the lag. */
function Strip({ partitions }) {
  const most = Math.max(1, ...partitions.map((p) => p.lag ?? 0));
  return html`<div class="strip" role="list" aria-label="Partitions">${partitions.map((p) => {
    const text = `partition ${p.partition}: ${p.scheduler ?? 'no scheduler'}, lag ${countText(p.lag)}, ${countText(p.open_tasks)} open${p.restored < 1 ? `, index ${shareText(p.restored)} restored` : ''}`;
    return html`<span key=${p.partition} role="listitem" class=${p.scheduler ? '' : 'bad'} title=${text} aria-label=${text}><i style=${{ height: `${(100 * (p.lag ?? 0)) / most}%` }}></i><b>${p.partition}</b></span>`;
  })}</div>`;
}
