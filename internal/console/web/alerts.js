// Alerts: open ones, and those of the last 24 hours.

import { ask } from './api.js';
import { el, fill, instant, table, taskLink } from './dom.js';
import { incompleteNotice } from './overview.js';

const columns = [
  { head: 'At', cell: (a) => instant(a.at) },
  { head: 'Task', kind: 'name', cell: (a) => a.task && taskLink(a.task) },
  { head: 'Step', kind: 'name', cell: (a) => a.step },
  { head: 'Code', kind: 'name', cell: (a) => el('span', { class: a.ended_at ? 'quiet' : 'bad' }, a.code) },
  { head: 'Message', kind: 'text', cell: (a) => a.message },
  { head: 'Ended', cell: (a) => instant(a.ended_at) },
];

export function alerts(params, signal) {
  const open = params.get('open') === 'true';
  const page = params.get('page_token') ?? '';
  const list = el('div');
  return {
    title: 'Alerts',
    content: el('div', {}, el('p', {}, open
      ? el('a', { href: '#/alerts' }, 'Show ended alerts of the last 24 hours, too')
      : el('a', { href: '#/alerts?open=true' }, 'Show open alerts only')), list),
    async refresh() {
      const answer = await ask('/alerts', { open: open || '', page_token: page, limit: 50 }, signal);
      const query = new URLSearchParams({ page_token: answer.next_page_token, ...(open && { open }) });
      fill(list, incompleteNotice(answer), table(columns, answer.alerts, 'No alerts.'),
        answer.next_page_token && el('a', { href: `#/alerts?${query}`, rel: 'next' }, `Older (${answer.left_off})`));
    },
  };
}
