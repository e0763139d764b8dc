// Parts of the page of a task.

import { useState } from 'preact/hooks';
import { root } from './api.js';
import { numberOf } from './format.js';
import { html } from './html.js';
import { useAnswer, withToken } from './live.js';
import { askText } from './api.js';
import { address, tasksAddress, term } from './route.js';
import { becameTexts } from './texts.js';
import { CommandLine, ErrorText, Icon, Instant, Json, State, Terms } from './parts.js';

/** Facts about a task. */
export function Facts({ task }) {
  return html`<${Terms} all=${[
    ['Workflow', html`<a href=${address(['workflows', task.workflow, String(task.version)])}>${task.workflow}/${task.version}</a>`],
    ['Submitted', html`<${Instant} at=${task.submitted_at} />`],
    ['Updated', html`<${Instant} at=${task.updated_at} />`],
    ['Failures', task.failure_count ? String(task.failure_count) : ''],
    ['Priority', task.priority ? String(task.priority) : ''],
    ['Labels', Object.keys(task.labels).length > 0 && Object.entries(task.labels).map(([k, v]) => html`<a key=${k} class="label" href=${tasksAddress(term('label', `${k}=${v}`))}>${k}=${v}</a> `)],
    ['Reply to', task.reply_to],
    ['Scheduler', task.locked_by],
    ['Partition', String(task.as_of.partition)],
  ]} />`;
}

/** Whether the chain of the events is unbroken, asked again when there are more, but not often: all events are read for it. */
export function Chain({ path, events }) {
  const [open, setOpen] = useState(false);
  const { data } = useAnswer(events > 0 ? `${path}/chain` : null, {}, { optional: true, every: 60_000, on: (c) => c.more || c.tasks.some((id) => path.endsWith(`/${encodeURIComponent(id)}`)) });
  if (!data) return null;
  const checked = `${data.events < events ? 'first ' : ''}${numberOf(data.events, 'event')}`;
  const text = data.unbroken ? `${checked}, unbroken` : `${numberOf(data.faults.length, 'fault')} in ${checked}`;
  return html`<span class="chain"><button type="button" class=${`state ${data.unbroken ? 'is-good' : 'is-held'}`} aria-expanded=${open} onClick=${() => setOpen(!open)}><${Icon} name=${data.unbroken ? 'good' : 'held'} />${text}</button>
    ${open && html`<div class="popover"><p>${data.unbroken ? 'Each event has the hash of the one before it, and all hashes match.' : 'The history has faults:'} ${data.unbroken && (data.sealed ? 'The last event has its own checksum.' : 'The last event has no checksum of its own.')}</p>
      ${data.faults.length > 0 && html`<ul>${data.faults.map((f, i) => html`<li key=${i}>${f.promise}${f.seq ? `, event ${f.seq}` : ''}: ${f.what}</li>`)}</ul>`}
      <p class="quiet">The events of one task can't show:</p><ul>${data.unchecked.map((u) => html`<li key=${u}>${u}</li>`)}</ul></div>`}</span>`;
}

/** Whether an agent is being asked what became of a step's attempt. */
export const isChecked = (s) => ['running', 'waiting', 'failed', 'pending'].includes(s?.check?.state);

/** The state of a step or of its undo, by its name in texts.js. */
export const stateOf = (task, s) => (s?.state === 'error' && task.state !== 'error' ? 'step error' : s?.state);

/** The last check of a step: whether it is under way, and what it found. */
const Checked = ({ s }) => s.check && html`<div class="quiet checked">${isChecked(s) ? html`<${State} name="checking" /> attempt ${s.check.attempt}` : html`checked: ${becameTexts[s.check.became] ?? s.check.state}`}${s.check.error && html` <${ErrorText} error=${s.check.error} />`}</div>`;

/** The steps, each with its attempts, times, error and data. */
export function Steps({ task, chosen }) {
  return html`<section><h2 class="sr">Table of the steps</h2><div class="table" tabindex="0" role="region" aria-label="Steps"><table class="steps">
    <thead><tr>${['Step', 'State', 'Attempt', 'Failures', 'Agent', 'Started', 'Ended', 'Undo', 'Error'].map((c) => html`<th key=${c} scope="col" class=${c === 'Attempt' || c === 'Failures' ? 'number' : ''}>${c}</th>`)}</tr></thead>
    <tbody>${task.steps.map((s) => html`<${Step} key=${s.id} s=${s} state=${stateOf(task, s)} undo=${stateOf(task, s.undo)} chosen=${chosen === s.id} />`)}</tbody></table></div></section>`;
}

function Step({ s, state, undo, chosen }) {
  const data = [['Input', s.input], ['Output', s.output], ['Progress', s.progress], ['Error details', s.error?.details]].filter(([, raw]) => raw != null);
  return html`<tr data-step=${s.id} tabindex="-1" class=${chosen ? 'chosen' : ''}>
    <td class="name">${data.length > 0 ? html`<details><summary>${s.id}</summary>${data.map(([name, raw]) => html`<h3 key=${name}>${name}</h3><${Json} raw=${raw} label=${`${name} of ${s.id}`} />`)}</details>` : s.id}</td>
    <td><${State} name=${state} /><${Checked} s=${s} /></td><td class="number">${s.attempt || ''}${s.calls ? ` (${numberOf(s.calls, 'call')})` : ''}</td><td class="number">${s.failure_count || ''}</td>
    <td class="name">${s.agent ? html`<a href=${tasksAddress(term('agent', s.agent))}>${s.agent}</a> ${s.operation}` : s.kind}</td>
    <td><${Instant} at=${s.started_at} exact /></td><td><${Instant} at=${s.ended_at} exact /></td>
    <td>${s.undo && html`<${State} name=${undo} />${s.undo.attempt > 1 && ` attempt ${s.undo.attempt}`}`}</td>
    <td class="text"><${ErrorText} error=${s.undo?.error ?? s.error} /></td></tr>`;
}

const quoted = (text) => (/^[\w.:@/+-]+$/.test(text) ? text : `'${text.replaceAll('\'', '\'\\\'\'')}'`);

/** The same by other means: command lines, curl, export. */
export function Elsewhere({ task, path }) {
  const [problem, setProblem] = useState('');
  const url = new URL(root + path, document.baseURI).href;
  const save = async () => {
    setProblem('');
    try {
      const text = await withToken(() => askText(`${path}/export`));
      const a = document.createElement('a');
      a.href = URL.createObjectURL(new Blob([text], { type: 'application/jsonl' }));
      a.download = `${task.id.replace(/[^\w.-]/g, '_')}.jsonl`;
      a.click();
      URL.revokeObjectURL(a.href);
    } catch (e) {
      setProblem(e.message);
    }
  };
  return html`<section class="elsewhere"><div class="title"><h2>Elsewhere</h2><button type="button" onClick=${save}>Export the events</button></div>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <${CommandLine} label="Command line" text=${`waybill timeline ${quoted(task.id)}`} /><${CommandLine} label="Replay" text=${`waybill replay ${quoted(task.id)} --diff`} />
    <${CommandLine} label="curl" text=${`curl ${quoted(url)}`} /></section>`;
}
