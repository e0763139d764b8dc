// Dead letters: records of the last 24 hours that could not be processed, grouped by reason; and their redrive.

import { useEffect, useRef, useState } from 'preact/hooks';
import { post } from './api.js';
import { FormDialog, openDialog } from './dialog.js';
import { html } from './html.js';
import { bytesText } from './format.js';
import { useAnswer } from './live.js';
import { CommandLine, Copy, Incomplete, Instant, Loading, Table, TaskLink, Trouble } from './parts.js';
import { address, route } from './route.js';

const redrivePath = '/deadletters/redrive';
const shown = '24h'; // as the list

/** What became of a dead letter. */
function Fate({ of }) {
  if (of?.state === 'redriven') return html`written again, dead letter again: <code>${of.deadletter}</code>`;
  if (of?.state === 'task') return html`became <${TaskLink} id=${of.task} />`;
  return 'open';
}

/** Shows what a redrive of a reason, of an intake, or of both would write, and writes it. */
function RedriveDialog({ reason, intake, done }) {
  const [seen, setSeen] = useState(null);
  const [problem, setProblem] = useState('');
  const selection = { since: shown, ...(reason && { reasons: [reason] }), ...(intake && { intake }) };
  useEffect(() => {
    post(redrivePath, { ...selection, preview: true }).then(setSeen, (e) => setProblem(e.message));
  }, []);
  const send = async () => {
    const answer = await post(redrivePath, selection);
    done(`${answer.selected - answer.refused} written again, ${answer.refused} refused.`);
  };
  return html`<${FormDialog} title=${['redrive', reason, intake].filter(Boolean).join(' ')} label="redrive" does="Write the original records to their topics again. A record that is written twice has one effect." send=${send}>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${seen && html`<p>${seen.selected - seen.refused} of ${seen.selected} would be written${seen.refused > 0 && `; ${seen.refused} would become dead letters again`}.</p>`}
  <//>`;
}

export function Deadletters() {
  const [said, setSaid] = useState('');
  const { data: me } = useAnswer('/whoami', {}, { once: true });
  const mayRedrive = me?.roles.includes('operator') && !me.read_only;
  const { params } = route.value;
  const reason = params.get('reason') ?? '';
  const intake = params.get('intake') ?? '';
  const page = params.get('page_token') ?? '';
  const concerns = useRef(); // a dead letter may become a task
  const { data, problem } = useAnswer('/deadletters', { reason, intake, page_token: page, limit: 50 }, { every: 5000, on: (c) => c.what.includes('deadletters') || concerns.current(c) });
  concerns.current = (c) => c.more || data?.deadletters.some((d) => c.tasks.includes(d.key));
  const [open, setOpen] = useState(() => new Set());
  const toggle = (key, now) => setOpen((was) => {
    const next = new Set(was);
    if (now) next.add(key); else next.delete(key);
    return next;
  });
  const keyOf = (d) => `${d.partition}/${d.offset}`;
  const columns = [
    { head: 'At', cell: (d) => html`<${Instant} at=${d.at} />` },
    { head: 'Reason', cell: (d) => html`<a data-open href=${address(['deadletters'], { reason: d.reason, intake })}><code>${d.reason}</code></a>` },
    { head: 'Key', kind: 'name', cell: (d) => d.key && html`<${TaskLink} id=${d.key} />` },
    { head: 'Result', cell: (d) => html`<${Fate} of=${d.fate} />` },
    { head: 'Origin', kind: 'name', cell: (d) => d.origin },
    { head: 'Detail', kind: 'text', cell: (d) => html`${d.detail}<details open=${open.has(keyOf(d))} onToggle=${(e) => { if (e.target.open !== open.has(keyOf(d))) toggle(keyOf(d), e.target.open); }}><summary>${bytesText(d.size)} (${d.encoding})</summary>
      <div class="json"><pre tabindex="0" aria-label="Value of the record">${d.value}</pre><${Copy} text=${d.value} label="Copy the value" /></div></details>` },
  ];
  const reasons = [...new Set((data?.deadletters ?? []).map((d) => d.reason))];
  const counts = (r) => data.deadletters.filter((d) => d.reason === r).length;
  return html`<p class="quiet">Records of the last 24 hours that could not be processed. Once the cause is fixed, a redrive writes them again.</p>
    <${CommandLine} label="Preview of a redrive" text=${`waybill deadletters redrive${reason && ` --reason ${reason}`}${intake && ` --intake ${intake}`}`} />
    ${(reason || intake) && mayRedrive && html`<div class="buttons"><button type="button" data-redrive onClick=${() => openDialog(html`<${RedriveDialog} reason=${reason} intake=${intake} done=${setSaid} />`)}>redrive</button></div>`}
    <p role="status">${said}</p>
    <${Trouble} text=${problem} /><${Incomplete} answer=${data} />
    ${intake && html`<p>Intake <code>${intake}</code>. <a href=${address(['deadletters'], { reason })}>Show all intakes</a></p>`}
    ${reason ? html`<p>Reason <code>${reason}</code>. <a href=${address(['deadletters'], { intake })}>Show all reasons</a></p>` : reasons.length > 0 && html`<div class="chips">${reasons.map((r) => html`<a key=${r} class="chip" href=${address(['deadletters'], { reason: r, intake })}>${r} <b>${counts(r)}</b></a>`)} <span class="quiet">on this page</span></div>`}
    ${data ? html`<${Table} label="Dead letters" columns=${columns} rows=${data.deadletters} keyOf=${keyOf} none="No dead letters." />
      ${data.next_page_token && html`<div class="pager"><a class="button" rel="next" href=${address(['deadletters'], { reason, intake, page_token: data.next_page_token })}>Older (${data.left_off})</a></div>`}` : !problem && html`<${Loading} what="dead letters" />`}`;
}
