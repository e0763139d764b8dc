// Alerts: open ones, and those of the last 24 hours.

import { html } from './html.js';
import { useAnswer } from './live.js';
import { Incomplete, Instant, Loading, State, Table, TaskLink, Trouble } from './parts.js';
import { address, route } from './route.js';

const columns = [
  { head: 'At', cell: (a) => html`<${Instant} at=${a.at} />` },
  { head: 'Task', kind: 'name', cell: (a) => a.task && html`<${TaskLink} id=${a.task} />` },
  { head: 'Step', kind: 'name', cell: (a) => a.step },
  { head: 'Code', kind: 'name', cell: (a) => html`<span class=${a.ended_at ? 'quiet' : 'error'}>${a.code}</span>` },
  { head: 'Message', kind: 'text', cell: (a) => a.message },
  { head: 'Ended', cell: (a) => (a.ended_at ? html`<${Instant} at=${a.ended_at} />` : html`<${State} name="error" />`) },
];

/** A page of alerts. open: only those of tasks that are still held. */
export function AlertList({ open, page = '' }) {
  const { data, problem } = useAnswer('/alerts', { open, page_token: page, limit: 50 }, { every: 5000, on: ['alerts', 'holds'] });
  return html`<${Trouble} text=${problem} /><${Incomplete} answer=${data} />${data ? html`
    <${Table} label="Alerts" columns=${columns} rows=${data.alerts} keyOf=${(a) => `${a.partition}/${a.offset}${a.seq ? '' : ' topic'}`} none="No alerts." />
    ${data.next_page_token && html`<div class="pager"><a class="button" rel="next" href=${address(['alerts'], { page_token: data.next_page_token, open })}>Older (${data.left_off})</a></div>`}` : !problem && html`<${Loading} what="alerts" />`}`;
}

export function Alerts() {
  const { params } = route.value;
  const open = params.get('open') === 'true';
  return html`<p>${open ? html`<a href="#/alerts">Show ended alerts of the last 24 hours, too</a>` : html`<a href="#/alerts?open=true">Show open alerts only</a>`}</p>
    <${AlertList} open=${open} page=${params.get('page_token') ?? ''} />`;
}
