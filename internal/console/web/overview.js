// Overview: tasks by state, workflows, agents, partitions.

import { ask } from './api.js';
import { el, fill, instant, state, table } from './dom.js';

const states = ['pending', 'processing', 'undoing', 'error', 'processed', 'undone', 'cancelled'];

const workflowColumns = [
  { head: 'Workflow', kind: 'name', cell: (w) => el('a', { href: tasksOf(`workflow:${w.workflow}/${w.version}`) }, `${w.workflow}/${w.version}`) },
  { head: 'Steps', kind: 'text', cell: (w) => w.steps.join(', ') },
  ...states.map((s) => ({
    head: s,
    kind: 'number',
    cell: (w) => w.tasks[s] && el('a', { href: tasksOf(`workflow:${w.workflow}/${w.version} state:${s}`) }, String(w.tasks[s])),
  })),
];

const agentColumns = [
  { head: 'Agent', kind: 'name', cell: (a) => el('a', { href: tasksOf(`agent:${a.agent}`) }, a.agent) },
  { head: 'Members', kind: 'number', cell: (a) => text(a.members) },
  { head: 'In flight', kind: 'number', cell: (a) => text(a.in_flight) },
  { head: 'Lag', kind: 'number', cell: (a) => text(a.lag) },
  { head: 'Circuit', cell: (a) => state(a.circuit) },
];

const partitionColumns = [
  { head: 'Partition', kind: 'number', cell: (p) => text(p.partition) },
  { head: 'Scheduler', kind: 'name', cell: (p) => p.scheduler ?? el('span', { class: 'bad' }, 'none') },
  { head: 'Scheduler restored', kind: 'number', cell: (p) => share(p.scheduler_restored) },
  { head: 'Lag', kind: 'number', cell: (p) => text(p.lag) },
  { head: 'Open tasks', kind: 'number', cell: (p) => text(p.open_tasks) },
  { head: 'Tasks', kind: 'number', cell: (p) => text(p.tasks) },
  { head: 'Earliest timer', cell: (p) => instant(p.oldest_due) },
  { head: 'Index restored', kind: 'number', cell: (p) => share(p.restored) },
];

export function overview(_, signal) {
  const counts = el('ul', { class: 'counts' });
  const [workflows, agents, partitions, incomplete] = [el('div'), el('div'), el('div'), el('div')];
  return {
    title: 'Overview',
    content: el('div', {}, incomplete, counts, el('h2', {}, 'Workflows'), workflows, el('h2', {}, 'Agents'), agents, el('h2', {}, 'Partitions'), partitions),
    async refresh() {
      const [w, a, p] = await Promise.all(['/workflows', '/agents', '/partitions'].map((path) => ask(path, {}, signal)));
      fill(incomplete, incompleteNotice(w));
      fill(counts, states.map((s) => el('li', {}, el('a', { href: tasksOf(`state:${s}`) },
        el('b', {}, String(w.workflows.reduce((n, x) => n + (x.tasks[s] ?? 0), 0))), state(s)))));
      fill(workflows, table(workflowColumns, w.workflows, 'No workflow definition was applied yet. Apply one: waybill workflow apply FILE'));
      fill(agents, table(agentColumns, a.agents, 'No workflow definition names an agent.'));
      fill(partitions, table(partitionColumns, p.partitions, 'No partitions.'));
    },
  };
}

const lacks = {
  no_leader: (i) => `partition ${i.partition} has no leader`,
  restoring: (i) => `the index of partition ${i.partition} is being restored, ${share(i.restored)} done`,
};

/** A notice for incomplete answers. */
export function incompleteNotice(answer) {
  const list = answer.incomplete ?? [];
  return list.length > 0 && el('p', { class: 'problem' }, `Incomplete: ${list.map((i) => (lacks[i.why] ?? lacks.restoring)(i)).join('; ')}.`);
}

const tasksOf = (filter) => `#/tasks?${new URLSearchParams({ filter })}`;
const text = (n) => (n == null ? 'unknown' : String(n));
const share = (n) => (n == null ? '' : `${Math.floor(n * 100)} %`);
