// The task list, with a filter and pages.

import { ask } from './api.js';
import { el, fill, instant, state, table, taskLink } from './dom.js';
import { incompleteNotice } from './overview.js';

const columns = [
  { head: 'Task', kind: 'name', cell: (t) => taskLink(t.id) },
  { head: 'Workflow', kind: 'name', cell: (t) => `${t.workflow}/${t.version}` },
  { head: 'State', cell: (t) => state(t.state) },
  { head: 'Failures', kind: 'number', cell: (t) => String(t.failure_count) },
  { head: 'Submitted', cell: (t) => instant(t.submitted_at) },
  { head: 'Updated', cell: (t) => instant(t.updated_at) },
  { head: 'Next timer', cell: (t) => instant(t.due) },
  { head: 'Waiting for', kind: 'name', cell: (t) => t.waiting_for.join(', ') },
  { head: 'Error', kind: 'name', cell: (t) => t.error_code },
  { head: 'Labels', kind: 'text', cell: (t) => Object.entries(t.labels).map(([k, v]) => `${k}=${v}`).join(' ') },
];

export function tasks(params, signal) {
  const filter = params.get('filter') ?? '';
  const page = params.get('page_token') ?? '';
  const input = el('input', { name: 'filter', value: filter, placeholder: 'state:error workflow:order label:region=eu since:10m', spellcheck: 'false' });
  const list = el('div');
  return {
    title: 'Tasks',
    content: el('div', {},
      el('form', { onsubmit: (e) => { e.preventDefault(); location.hash = address(input.value.trim(), ''); } },
        el('label', {}, 'Filter: terms separated by spaces, combined by AND', input),
        el('button', {}, 'Show')),
      el('p', { class: 'quiet' }, 'state: workflow: label:NAME=VALUE step_in_error: agent: since: until: due_within:'),
      list),
    async refresh() {
      const answer = await ask('/tasks', { filter, page_token: page, page_size: 50 }, signal);
      const next = answer.next_page_token;
      fill(list, incompleteNotice(answer), table(columns, answer.tasks, next ? 'No tasks on this page; there are further pages.' : 'No tasks.'),
        el('div', { class: 'buttons' },
          page && el('a', { href: address(filter, '') }, 'Newest'),
          next && el('a', { href: address(filter, next), rel: 'next' }, 'Older')));
    },
  };
}

function address(filter, page) {
  const query = new URLSearchParams(Object.entries({ filter, page_token: page }).filter(([, v]) => v)).toString();
  return query ? `#/tasks?${query}` : '#/tasks';
}
