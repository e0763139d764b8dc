// Dead letters: records of the last 24 hours that could not be processed.

import { ask } from './api.js';
import { el, fill, instant, table } from './dom.js';
import { incompleteNotice } from './overview.js';

const columns = [
  { head: 'At', cell: (d) => instant(d.at) },
  { head: 'Reason', cell: (d) => el('a', { href: `#/deadletters?${new URLSearchParams({ reason: d.reason })}` }, d.reason) },
  { head: 'Origin', cell: (d) => d.origin },
  { head: 'Key', kind: 'name', cell: (d) => d.key },
  { head: 'Detail', kind: 'text', cell: (d) => [d.detail, el('details', {}, el('summary', {}, `${d.size} bytes (${d.encoding})`), el('pre', {}, d.value))] },
];

export function deadletters(params, signal) {
  const reason = params.get('reason') ?? '';
  const page = params.get('page_token') ?? '';
  const list = el('div');
  let seen = '';
  return {
    title: 'Dead letters',
    content: el('div', {}, el('p', { class: 'quiet' }, 'Records of the last 24 hours that could not be processed. Once the cause is fixed, `waybill deadletters redrive` writes them again.'),
      reason && el('p', {}, `Reason ${reason}. `, el('a', { href: '#/deadletters' }, 'Show all')), list),
    async refresh() {
      const answer = await ask('/deadletters', { reason, page_token: page, limit: 50 }, signal);
      const now = JSON.stringify(answer);
      if (now === seen) return; // keeps opened details open
      seen = now;
      const query = new URLSearchParams({ page_token: answer.next_page_token, ...(reason && { reason }) });
      fill(list, incompleteNotice(answer), table(columns, answer.deadletters, 'No dead letters.'),
        answer.next_page_token && el('a', { href: `#/deadletters?${query}`, rel: 'next' }, `Older (${answer.left_off})`));
    },
  };
}
