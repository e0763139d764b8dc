// Batches: the list, and one with its progress and the result of each task.

import { useState } from 'preact/hooks';
import { post } from './api.js';
import { batchAddress, tasksText } from './batch.js';
import { FormDialog, openDialog } from './dialog.js';
import { html } from './html.js';
import { countText } from './format.js';
import { useAnswer } from './live.js';
import { migrateDialog } from './migrate.js';
import { CommandLine, Instant, Loading, State, Table, TaskLink, Terms, Trouble } from './parts.js';
import { CommandButton, refusal } from './rights.js';
import { address, route, tasksAddress } from './route.js';

const statuses = ['passed', 'accepted', 'refused', 'recurred', 'unanswered', 'waiting'];
const sent = (b) => b.tasks - (b.counts.waiting ?? 0);
const countsText = (b) => statuses.filter((s) => b.counts[s]).map((s) => `${countText(b.counts[s])} ${s}`).join(', ');

/** The command of a batch, in words. */
const commandOf = (b) => [b.command, b.version && `to version ${b.version}`, b.dry_run && '(dry run)'].filter(Boolean).join(' ');

const columns = [
  { head: 'Batch', kind: 'name', cell: (b) => html`<a class="id" data-open href=${batchAddress(b.id)}>${b.id}</a>` },
  { head: 'State', cell: (b) => html`<${State} name=${`batch ${b.state}`} />` },
  { head: 'Command', cell: commandOf },
  { head: 'Tasks', kind: 'number', cell: (b) => countText(b.tasks) },
  { head: 'Results', kind: 'text', cell: countsText },
  { head: 'Created', cell: (b) => html`<${Instant} at=${b.created_at} />` },
  { head: 'By', kind: 'name', cell: (b) => b.by || b.by_claimed },
  { head: 'Reason', kind: 'text', cell: (b) => b.reason },
];

export function Batches() {
  const { data, problem } = useAnswer('/batches', { limit: 100 }, { on: ['batches'] });
  return html`<p class="quiet">One command to many tasks. Select tasks in <a href="#/tasks">Tasks</a> or a cause in <a href="#/held">Held</a> to create one.</p>
    <${Trouble} text=${problem} />
    ${data ? html`<${Table} label="Batches" columns=${columns} rows=${data.batches} keyOf=${(b) => b.id} none="No batches in the last 30 days." />` : !problem && html`<${Loading} what="batches" />`}`;
}

function Stop({ id }) {
  const send = (form) => post(`/batches/${encodeURIComponent(id)}/stop`, { reason: form.get('reason') });
  return html`<${FormDialog} title="Stop the batch" label="stop" danger does="No more commands are sent. Commands that were sent keep their effect. A stopped batch can't be continued." send=${send}>
    <label>Reason, written to the log<input name="reason" required autofocus /></label><//>`;
}

const resultColumns = [
  { head: 'Task', kind: 'name', cell: (r) => html`<${TaskLink} id=${r.task} />` },
  { head: 'Result', cell: (r) => html`<${State} name=${`task ${r.status}`} />` },
  { head: 'State', cell: (r) => html`<${State} name=${r.state} />` },
  { head: 'Why', kind: 'text', cell: (r) => r.why },
];

export function Batch({ id }) {
  const [said, setSaid] = useState('');
  const { params } = route.value;
  const status = params.get('status') ?? '';
  const page = params.get('page_token') ?? '';
  const path = `/batches/${encodeURIComponent(id)}`;
  const { data: b, problem, refresh } = useAnswer(path, {}, { every: 1000, on: ['batches'] });
  const results = useAnswer(`${path}/results`, { status, page_token: page, page_size: 100 }, { on: ['batches'] });
  if (!b) return html`<h1>${id}</h1>${problem ? html`<${Trouble} text=${problem} />` : html`<${Loading} what="the batch" />`}`;
  const open = b.state === 'running' || b.state === 'stopping';
  return html`<h1>${b.command} ${tasksText(b.tasks)}${b.version && ` to version ${b.version}`}${b.dry_run && ', a dry run'} <${State} name=${`batch ${b.state}`} /></h1>
    <${Trouble} text=${b.why && `Stopped: ${b.why}`} /><${Trouble} text=${b.trouble} />
    <p role="status"><progress max=${b.tasks} value=${sent(b)} aria-label="Tasks that have the command"></progress> The command was sent to ${countText(sent(b))} of ${tasksText(b.tasks)}.</p>
    ${open && html`<div class="buttons"><button type="button" class="danger" data-stop aria-disabled=${b.state === 'stopping'} onClick=${() => b.state === 'running' && openDialog(html`<${Stop} id=${id} refresh=${refresh} />`)}>stop</button></div>`}
    ${b.dry_run && b.filter && b.state === 'done' && html`<p>${tasksText(b.counts.accepted ?? 0)} would be migrated. ${tasksText(b.counts.refused ?? 0)} would be refused.</p><p role="status">${said}</p>
      <div class="buttons"><${CommandButton} data-execute why=${refusal('migrate tasks') || !b.counts.accepted && 'No task would be migrated.'} refused=${setSaid} dialog=${() => migrateDialog(b.filter, b.version, true)}>migrate<//></div>`}
    <${Terms} all=${[['Reason', b.reason], ['By', b.by || b.by_claimed], ['Created', html`<${Instant} at=${b.created_at} />`], ['Ended', b.ended_at && html`<${Instant} at=${b.ended_at} />`],
    ['Filter', b.filter && html`<a href=${tasksAddress(b.filter)}><code>${b.filter}</code></a>`], ['Canary', b.canary > 0 && `${tasksText(b.canary)}, for at most ${b.canary_within}`], ['Rate', b.rate > 0 ? `${b.rate} per second` : 'no limit']]} />
    <div class="chips" role="group" aria-label="Results by status">${statuses.filter((s) => b.counts[s]).map((s) => html`<a key=${s} class="chip" href=${address(['batches', id], { status: status === s ? '' : s })} aria-current=${status === s ? 'true' : undefined}>${s} <b>${countText(b.counts[s])}</b></a>`)}</div>
    <${Trouble} text=${results.problem} />
    ${b.results_dropped ? html`<p>The results of its tasks are no longer kept.</p>` : results.data && html`<${Table} label="Results" columns=${resultColumns} rows=${results.data.results} keyOf=${(r) => r.task} none="No results." />
      ${results.data.next_page_token && html`<div class="pager"><a class="button" rel="next" href=${address(['batches', id], { status, page_token: results.data.next_page_token })}>More</a></div>`}`}
    <${CommandLine} label="Results" text=${`waybill batch results ${id} -o jsonl`} />`;
}
