// Dead letters: records of the last 24 hours that could not be processed, grouped by reason.

import { useState } from 'preact/hooks';
import { html } from './html.js';
import { bytesText } from './format.js';
import { useAnswer } from './live.js';
import { CommandLine, Copy, Incomplete, Instant, Loading, Table, TaskLink, Trouble } from './parts.js';
import { address, route } from './route.js';

export function Deadletters() {
  const { params } = route.value;
  const reason = params.get('reason') ?? '';
  const page = params.get('page_token') ?? '';
  const { data, problem } = useAnswer('/deadletters', { reason, page_token: page, limit: 50 }, { every: 5000 });
  const [open, setOpen] = useState(() => new Set());
  const toggle = (key, now) => setOpen((was) => {
    const next = new Set(was);
    if (now) next.add(key); else next.delete(key);
    return next;
  });
  const keyOf = (d) => `${d.partition}/${d.offset}`;
  const columns = [
    { head: 'At', cell: (d) => html`<${Instant} at=${d.at} />` },
    { head: 'Reason', cell: (d) => html`<a data-open href=${address(['deadletters'], { reason: d.reason })}><code>${d.reason}</code></a>` },
    { head: 'Key', kind: 'name', cell: (d) => d.key && html`<${TaskLink} id=${d.key} />` },
    { head: 'Origin', kind: 'name', cell: (d) => d.origin },
    { head: 'Detail', kind: 'text', cell: (d) => html`${d.detail}<details open=${open.has(keyOf(d))} onToggle=${(e) => { if (e.target.open !== open.has(keyOf(d))) toggle(keyOf(d), e.target.open); }}><summary>${bytesText(d.size)} (${d.encoding})</summary>
      <div class="json"><pre tabindex="0" aria-label="Value of the record">${d.value}</pre><${Copy} text=${d.value} label="Copy the value" /></div></details>` },
  ];
  const reasons = [...new Set((data?.deadletters ?? []).map((d) => d.reason))];
  const counts = (r) => data.deadletters.filter((d) => d.reason === r).length;
  return html`<p class="quiet">Records of the last 24 hours that could not be processed. Once the cause is fixed, a redrive writes them again.</p>
    <${CommandLine} label="Preview of a redrive" text=${`waybill deadletters redrive${reason && ` --reason ${reason}`}`} />
    <${Trouble} text=${problem} /><${Incomplete} answer=${data} />
    ${reason ? html`<p>Reason <code>${reason}</code>. <a href="#/deadletters">Show all</a></p>` : reasons.length > 0 && html`<div class="chips">${reasons.map((r) => html`<a key=${r} class="chip" href=${address(['deadletters'], { reason: r })}>${r} <b>${counts(r)}</b></a>`)} <span class="quiet">on this page</span></div>`}
    ${data ? html`<${Table} label="Dead letters" columns=${columns} rows=${data.deadletters} keyOf=${keyOf} none="No dead letters." />
      ${data.next_page_token && html`<div class="pager"><a class="button" rel="next" href=${address(['deadletters'], { reason, page_token: data.next_page_token })}>Older (${data.left_off})</a></div>`}` : !problem && html`<${Loading} what="dead letters" />`}`;
}
