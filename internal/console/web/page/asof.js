// The whole system at a past instant: counts, and the tasks that were open then.

import { useEffect, useState } from 'preact/hooks';
import { countText, localText, numberOf } from './format.js';
import { html } from './html.js';
import { useAnswer } from './live.js';
import { Empty, ErrorText, Incomplete, Instant, Loading, State, Table, Trouble } from './parts.js';
import { address, replaceAddress, route, taskAddress, term } from './route.js';
import { openStates, taskStates } from './texts.js';

const backs = [['5m', '5 minutes ago'], ['15m', '15 minutes ago'], ['1h', '1 hour ago'], ['24h', 'a day ago'], ['168h', 'a week ago']];
const durations = { m: 60_000, h: 3_600_000 };

/** An instant for a field of local time; it has no zone. */
const fieldOf = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 23);

/** A duration before now as an instant; an instant is returned unchanged. */
function instantOf(text) {
  const back = /^(\d+)([mh])$/.exec(text ?? '');
  return back ? new Date(Date.now() - Number(back[1]) * durations[back[2]]).toISOString() : text;
}

export function AsOf() {
  const { params } = route.value;
  const at = params.get('at') ?? '';
  const filter = params.get('filter') ?? '';
  const [pages, setPages] = useState(['']); // tokens
  const to = (next) => { setPages(['']); replaceAddress(address(['as-of'], { at, filter, ...next })); };
  const fixed = /^\d+[mh]$/.test(at);
  useEffect(() => { if (fixed) to({ at: instantOf(at) }); }, [at]); // so that the address means the same later
  const a = useAnswer(at && !fixed ? '/as-of' : null, { at, filter, page_token: pages.at(-1) }, { once: true });
  const v = a.data;
  const choose = (e) => {
    e.preventDefault();
    const form = new FormData(e.target);
    const ms = Date.parse(form.get('at'));
    if (!Number.isNaN(ms)) to({ at: new Date(ms).toISOString(), filter: form.get('filter').trim() });
  };
  return html`<form class="bar" onSubmit=${choose} key=${at + filter}>
      <label class="beside">At <input type="datetime-local" name="at" step="0.001" required defaultValue=${at && !Number.isNaN(Date.parse(at)) ? fieldOf(Date.parse(at)) : ''} /></label>
      <label class="beside">Open tasks with <input name="filter" placeholder="state:held workflow:order" defaultValue=${filter} /></label><button class="primary">Show</button>
      <span class="views" role="group" aria-label="Before now">${backs.map(([back, text]) => html`<button type="button" key=${back} class="chip" onClick=${() => to({ at: instantOf(back) })}>${text}</button>`)}</span></form>
    <${Trouble} text=${a.problem} />
    ${!at && html`<${Empty}>Choose an instant: the page shows every task as it was then.<//>`}
    ${at && !v && !a.problem && html`<${Loading} what="the system at that instant" />`}
    ${v && html`<${Then} v=${v} filter=${filter} to=${to} />
      <${Table} label="Tasks that were open" columns=${columns} rows=${v.tasks} keyOf=${(t) => t.task.id} none=${filter ? 'No open task matched the filter.' : 'No task was open.'} />
      <div class="pager"><span class="quiet">${numberOf(v.matched, 'open task')}</span>${pages.length > 1 && html`<button type="button" onClick=${() => setPages(pages.slice(0, -1))}>Newer</button>`}${v.next_page_token && html`<button type="button" onClick=${() => setPages([...pages, v.next_page_token])}>Older</button>`}</div>`}`;
}

const total = (states) => Object.values(states).reduce((n, k) => n + k, 0);

/** The counts, and what had waited the longest. */
function Then({ v, filter, to }) {
  const held = v.states.error ?? 0;
  return html`<p class="sentence">At <b>${localText(v.at, true)}</b>, ${v.open === 0 ? 'no task was open.' : html`<b>${countText(v.open)}</b> ${v.open === 1 ? 'task was' : 'tasks were'} open${held > 0 ? html`, <b class="error">${countText(held)}</b> of them held.` : '.'}`}
      ${v.oldest && html` The oldest was <a href=${taskAddress(v.oldest.task.id, { seq: v.oldest.seq })}>${v.oldest.task.id}</a>, submitted <${Instant} at=${v.oldest.task.submitted_at} />.`}
      ${v.oldest_held && html` The task that had been held the longest: <a href=${taskAddress(v.oldest_held.task.id, { seq: v.oldest_held.seq })}>${v.oldest_held.task.id}</a>, since <${Instant} at=${v.oldest_held.task.updated_at} />.`}</p>
    <${Incomplete} answer=${v} />
    ${v.unreadable > 0 && html`<p class="problem">${numberOf(v.unreadable, 'task')} with an event that can't be read, counted as of the event before it.</p>`}
    ${!v.final && v.incomplete.length === 0 && html`<p class="quiet">This instant is so recent that it can still change.</p>`}
    <ul class="counts">${taskStates.map((s) => html`<li key=${s}><a href=${openStates.includes(s) ? address(['as-of'], { at: v.at, filter: term('state', s) }) : address(['tasks'], { filter: `${term('state', s)} ${term('until', v.at)}` })}
      title=${openStates.includes(s) ? undefined : 'tasks that were submitted before this instant and are in this state now'}><b>${countText(v.states[s] ?? 0)}</b><${State} name=${s} /></a></li>`)}</ul>
    ${v.workflows.length > 0 && html`<div class="table" tabindex="0" role="region" aria-label="By workflow"><table><thead><tr><th scope="col">Workflow</th><th scope="col" class="number">Tasks</th>${taskStates.map((s) => html`<th key=${s} scope="col" class="number"><${State} name=${s} /></th>`)}</tr></thead>
      <tbody>${v.workflows.map((w) => html`<tr key=${`${w.workflow}/${w.version}`}><td class="name"><a href=${address(['as-of'], { at: v.at, filter: term('workflow', `${w.workflow}/${w.version}`) })}>${w.workflow}/${w.version}</a></td><td class="number">${countText(total(w.states))}</td>
        ${taskStates.map((s) => html`<td key=${s} class="number">${w.states[s] ? countText(w.states[s]) : html`<span class="faint">0</span>`}</td>`)}</tr>`)}</tbody></table></div>`}
    <div class="title"><h2>Open then</h2>${filter && html`<span class="chip">${filter}</span><button type="button" class="quiet" onClick=${() => to({ filter: '' })}>All</button>`}</div>`;
}

const columns = [
  { head: 'Task', kind: 'name', cell: (t) => html`<a class="id" data-open href=${taskAddress(t.task.id, { seq: t.seq })} title=${t.task.id}>${t.task.id}</a>` },
  { head: 'Workflow', cell: (t) => `${t.task.workflow}/${t.task.version}` },
  { head: 'State', cell: (t) => html`<${State} name=${t.task.state} />` },
  { head: 'Event', kind: 'number', cell: (t) => String(t.seq) },
  { head: 'Submitted', cell: (t) => html`<${Instant} at=${t.task.submitted_at} />` },
  { head: 'Updated', cell: (t) => html`<${Instant} at=${t.task.updated_at} />` },
  { head: 'Failures', kind: 'number', cell: (t) => t.task.failure_count || '' },
  { head: 'Waiting for', cell: (t) => t.task.waiting_for.join(', ') },
  { head: 'Error', kind: 'text', cell: (t) => t.task.error_code && html`<${ErrorText} error=${{ code: t.task.error_code, message: t.task.steps_in_error.join(', ') }} />` },
];
