// Workflows: the versions, and one version with its graph, counts by step, source and difference to others. newversion.js writes a new one.

import { useState } from 'preact/hooks';
import { workflowPath } from './api.js';
import { html } from './html.js';
import { Later } from './later.js';
import { Graph } from './graph.js';
import { countText, durationText } from './format.js';
import { useAnswer } from './live.js';
import { WorkflowCounts } from './now.js';
import { Copy, Incomplete, Loading, State, Table, Trouble } from './parts.js';
import { address, route, tasksAddress, term } from './route.js';
import { Changes, Lines } from './slider.js';

export function Workflows() {
  const { data, problem } = useAnswer('/workflows', {}, { on: ['workflows', 'tasks'] });
  return html`<div class="buttons"><a class="button" data-new href="#/workflows/new">New version</a></div><${Trouble} text=${problem} /><${Incomplete} answer=${data} />${data ? html`<${WorkflowCounts} workflows=${data.workflows} />` : !problem && html`<${Loading} what="workflows" />`}<${Later} load=${() => import('./schedules.js')} of="Schedules" /><${Later} load=${() => import('./intakes.js')} of="Intakes" />`;
}

export function Workflow({ name, version }) {
  const to = route.value.params.get('to');
  const path = workflowPath(name, version);
  const list = useAnswer('/workflows', {}, { every: 5000, on: ['workflows', 'tasks'] });
  const w = useAnswer(path, {}, { optional: true, once: true });
  const s = useAnswer(`${path}/steps`, {}, { optional: true, every: 5000, on: ['tasks'] });
  const [step, setStep] = useState(null);
  const versions = (list.data?.workflows ?? []).filter((x) => x.workflow === name);
  const mine = versions.find((x) => String(x.version) === version);
  const bySteps = new Map((s.data?.steps ?? []).map((x) => [x.step, x]));
  return html`<div class="head"><p class="crumb"><a href="#/workflows">Workflows</a></p>
      <div class="title"><h1 class="id">${name}/${version}</h1>${w.data?.deleted && html`<${State} name="cancelled" /> deleted`}
        ${versions.length > 1 && html`<nav class="views" aria-label="Versions">${versions.map((v) => html`<a key=${v.version} class="chip" aria-current=${String(v.version) === version ? 'page' : undefined} href=${address(['workflows', name, String(v.version)])}>${v.version}</a>`)}</nav>`}</div>
      ${w.data && html`<p class="quiet">A task must complete within ${w.data.complete_within}. On an error: ${w.data.on_error}.</p>`}
      ${mine && html`<p>${Object.entries(mine.tasks).map(([st, n]) => html`<a key=${st} class="facet" href=${tasksAddress(`${term('workflow', `${name}/${version}`)} state:${st}`)}><${State} name=${st} /><b>${countText(n)}</b></a> `)}</p>`}</div>
    <${Trouble} text=${w.problem ?? s.problem ?? list.problem} /><${Incomplete} answer=${s.data} />
    ${w.data && html`<section><h2>Steps</h2><${Graph} graph=${w.data.graph} stateOf=${(id) => stateOf(bySteps.get(id))} notesOf=${(id) => noteOf(bySteps.get(id))} choose=${setStep} chosen=${step} /></section>`}
    ${w.absent && !s.data && mine && html`<section><h2>Steps</h2><ol>${mine.steps.map((x) => html`<li key=${x}>${x}</li>`)}</ol></section>`}
    ${s.data && html`<section><h2 class="sr">Counts by step</h2><${Table} label="Counts by step" columns=${stepColumns(name, version, s.data.steps)} rows=${s.data.steps} keyOf=${(x) => x.step} rowClass=${(x) => (x.step === step ? 'chosen' : '')} none="No task has reached a step." /></section>`}
    ${versions.length > 1 && html`<${Later} load=${() => import('./versions.js')} of="Versions" version=${version} versions=${versions} />`}
    ${versions.length > 1 && html`<${Diff} path=${path} name=${name} version=${version} versions=${versions} to=${to} />`}
    ${w.data && html`<section><div class="title"><h2>Definition</h2><${Copy} text=${w.data.source} label="Copy the definition" /><a class="button" data-edit href=${address(['workflows', 'new'], { workflow: name, version })}>Edit as new version</a></div><pre class="source" tabindex="0" aria-label="Definition">${w.data.source}</pre></section>`}`;
}

/** The state in which a step of the graph is shown: the worst that it has now. */
function stateOf(s) {
  if (!s) return undefined;
  if (s.held > 0) return 'error';
  return ['failed', 'waiting', 'running'].find((st) => s.at[st] > 0) ?? (s.do.completed > 0 ? 'completed' : 'pending');
}

function noteOf(s) {
  if (!s) return undefined;
  const now = ['running', 'waiting', 'failed'].reduce((n, st) => n + (s.at[st] ?? 0), 0);
  return [s.held > 0 && `${countText(s.held)} held`, now > 0 && `${countText(now)} here`, s.do.failures > 0 && `${countText(s.do.failures)} failed`, s.do.duration && `p95 ${durationText(s.do.duration.p95_ms)}`].filter(Boolean).join(', ') || undefined;
}

const some = (n) => (n ? countText(n) : html`<span class="faint">0</span>`);

// Columns that are shown if a step has any.
const rare = [
  ['Given up', (s) => s.do.errored], ['Skipped', (s) => s.do.skipped], ['Caught', (s) => s.do.caught], ['Repeated', (s) => s.do.repeated],
  ['By hand', (s) => s.do.released + s.undo.released], ['Checks', (s) => s.check?.attempts ?? 0],
];

const stepColumns = (name, version, steps) => [
  { head: 'Step', kind: 'name', cell: (s) => s.step },
  { head: 'Running', kind: 'number', cell: (s) => some(s.at.running) },
  { head: 'Waiting', kind: 'number', cell: (s) => some((s.at.waiting ?? 0) + (s.at.failed ?? 0)) },
  { head: 'Held', kind: 'number', cell: (s) => (s.held ? html`<a class="error" href=${tasksAddress(`${term('workflow', `${name}/${version}`)} ${term('step_in_error', s.step)}`)}>${countText(s.held)}</a>` : some(0)) },
  { head: 'Completed', kind: 'number', cell: (s) => some(s.do.completed) },
  { head: 'Attempts', kind: 'number', cell: (s) => some(s.do.attempts) },
  { head: 'Failures', kind: 'number', cell: (s) => some(s.do.failures) },
  { head: 'Undone', kind: 'number', cell: (s) => some(s.undo.completed) },
  ...rare.filter(([, of]) => steps.some((s) => of(s) > 0)).map(([head, of]) => ({ head, kind: 'number', cell: (s) => some(of(s)) })),
  { head: 'p50', kind: 'number', cell: (s) => s.do.duration && durationText(s.do.duration.p50_ms) },
  { head: 'p95', kind: 'number', cell: (s) => s.do.duration && durationText(s.do.duration.p95_ms) },
  { head: 'Longest', kind: 'number', cell: (s) => s.do.duration && durationText(s.do.duration.max_ms) },
];

/** The difference to another version: what changed, and the lines. */
function Diff({ path, name, version, versions, to }) {
  const d = useAnswer(to && `${path}/diff`, { to }, { optional: true, once: true });
  return html`<section><div class="title"><h2>Compare</h2><div class="views" role="group" aria-label="Compare with">${versions.filter((v) => String(v.version) !== version).map((v) => html`<a key=${v.version} class="chip" aria-current=${String(v.version) === to ? 'true' : undefined} href=${address(['workflows', name, version], { to: v.version })}>with ${v.version}</a>`)}</div></div>
    <${Trouble} text=${d.problem} />
    ${d.data && html`<${Changes} list=${d.data.changes} /><${Lines} list=${d.data.lines} />`}</section>`;
}
