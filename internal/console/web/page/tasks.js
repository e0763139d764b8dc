// The list of tasks: filter with completion, views, counts, columns, selection, pages.

import { signal } from '@preact/signals';
import { useEffect, useState } from 'preact/hooks';
import { html } from './html.js';
import { batchBar } from './batch.js';
import { completions, nameOf, splitTerms, valueOf, without, withTerm } from './filter.js';
import { countText } from './format.js';
import { kept } from './kept.js';
import { useAnswer } from './live.js';
import { Incomplete, Instant, Loading, State, Table, TaskLink, Trouble } from './parts.js';
import { address, go, route, tasksAddress, term } from './route.js';
import { taskStates } from './texts.js';

const columns = [
  { name: 'task', head: 'Task', kind: 'name', cell: (t) => html`<${TaskLink} id=${t.id} />` },
  { name: 'state', head: 'State', cell: (t) => html`<${State} name=${t.state} />` },
  { name: 'workflow', head: 'Workflow', kind: 'name', cell: (t) => html`<a href=${address(['workflows', t.workflow, String(t.version)])}>${t.workflow}/${t.version}</a>` },
  { name: 'error', head: 'Error', kind: 'name', cell: (t) => t.error_code && html`<span class="error">${t.error_code}${t.steps_in_error.length > 0 && ` at ${t.steps_in_error.join(', ')}`}</span>` },
  { name: 'waiting', head: 'Waiting for', kind: 'name', cell: (t) => t.waiting_for.join(', ') },
  { name: 'failures', head: 'Failures', kind: 'number', cell: (t) => (t.failure_count ? String(t.failure_count) : html`<span class="faint">0</span>`) },
  { name: 'submitted', head: 'Submitted', cell: (t) => html`<${Instant} at=${t.submitted_at} />` },
  { name: 'updated', head: 'Updated', cell: (t) => html`<${Instant} at=${t.updated_at} />` },
  { name: 'timer', head: 'Next timer', cell: (t) => html`<${Instant} at=${t.due} />` },
  { name: 'complete_by', head: 'Complete by', cell: (t) => html`<${Instant} at=${t.complete_by} />` },
  { name: 'priority', head: 'Priority', kind: 'number', cell: (t) => String(t.priority) },
  { name: 'labels', head: 'Labels', kind: 'labels', cell: (t) => Object.entries(t.labels).map(([k, v]) => html`<a key=${k} class="label" href=${tasksAddress(term('label', `${k}=${v}`))}>${k}=${v}</a> `) },
];

const hiddenColumns = kept('waybill.tasks.hidden', ['complete_by', 'priority', 'timer']);
const savedViews = kept('waybill.views', []);
const builtIn = [['All', ''], ['Held', 'state:error'], ['Open', 'state:pending,processing,undoing,error'], ['Due within 5 min', 'due_within:5m'], ['Last 10 min', 'since:10m']];

/** The ids of the selected tasks. They stay selected on other pages of the list. */
export const selected = signal(new Set());

const chosen = (rows) => ({
  has: (id) => selected.value.has(id),
  toggle: (id) => {
    const next = new Set(selected.value);
    if (!next.delete(id)) next.add(id);
    selected.value = next;
  },
  all: () => {
    const ids = rows.map((t) => t.id);
    const every = ids.every((id) => selected.value.has(id));
    selected.value = new Set(every ? [...selected.value].filter((id) => !ids.includes(id)) : [...selected.value, ...ids]);
  },
});

export function Tasks() {
  const { params } = route.value;
  const filter = params.get('filter') ?? '';
  const page = params.get('page_token') ?? '';
  const { data, problem } = useAnswer('/tasks', { filter, page_token: page, page_size: 50 }, { on: ['tasks'], aging: /\b(since|until|due_within):/.test(filter) ? 30_000 : undefined });
  const known = useAnswer('/workflows', {}, { every: 5000, on: ['workflows', 'tasks'] });
  const agents = useAnswer('/agents', {}, { once: true });
  const show = columns.filter((c) => !hiddenColumns.value.includes(c.name));
  const next = data?.next_page_token;
  useEffect(() => () => { selected.value = new Set(); }, []);
  return html`
    <${Views} filter=${filter} />
    <${FilterField} key=${filter} filter=${filter} known=${{ workflows: known.data?.workflows, agents: agents.data?.agents.map((a) => a.agent), states: taskStates, labels: labelsOf(data) }} />
    <${Facets} filter=${filter} workflows=${known.data?.workflows} />
    <${Trouble} text=${problem} />
    <${Incomplete} answer=${data} />
    ${batchBar(selected, filter)}
    ${!data ? !problem && html`<${Loading} what="tasks" />` : html`
      <${Table} label="Tasks" columns=${show} rows=${data.tasks} keyOf=${(t) => t.id} chosen=${chosen(data.tasks)}
        none=${next ? 'No tasks on this page; there are further pages.' : html`No tasks.${filter ? html` <a href="#/tasks">Show all tasks</a>` : html` <a href="#/submit">Submit one</a>`}`} />
      <div class="pager">${page && html`<a class="button" href=${tasksAddress(filter)}>Newest</a>`}
        ${next && html`<a class="button" rel="next" href=${address(['tasks'], { filter, page_token: next })}>Older</a>`}
        <${Columns} /></div>`}`;
}

const labelsOf = (data) => [...new Map((data?.tasks ?? []).flatMap((t) => Object.entries(t.labels)).map((l) => [l.join('='), l])).values()];

function Views({ filter }) {
  const saved = savedViews.value;
  const known = [...builtIn, ...saved];
  const save = () => {
    const name = prompt('Name of the view', filter);
    if (name) savedViews.value = [...saved.filter(([n]) => n !== name), [name, filter]];
  };
  return html`<div class="views" role="group" aria-label="Views">
    ${known.map(([name, f], i) => html`<span key=${name} class="view"><a href=${tasksAddress(f)} aria-current=${f === filter ? 'true' : undefined}>${name}</a>${i >= builtIn.length
      && html`<button type="button" class="icon-only" aria-label=${`Delete the view ${name}`} onClick=${() => { savedViews.value = saved.filter(([n]) => n !== name); }}>×</button>`}</span>`)}
    ${filter && !known.some(([, f]) => f === filter) && html`<button type="button" class="quiet" onClick=${save}>Save this view</button>`}
  </div>`;
}

/** A field for the filter. The text stays as it was typed; below are its terms, each to remove. */
function FilterField({ filter, known }) {
  const [text, setText] = useState(filter);
  const [at, setAt] = useState(-1);
  const [open, setOpen] = useState(false);
  const offers = open ? completions(text, known) : [];
  const take = (offer) => {
    setText(text.replace(/[^\s]*$/, offer) + (offer.endsWith(':') ? '' : ' '));
    setAt(-1);
  };
  const submit = (e) => {
    e.preventDefault();
    const f = text.trim();
    setOpen(false);
    // A word that is no term is the beginning of an id.
    go(tasksAddress(f && !f.includes(':') && !/\s/.test(f) ? `id:${f}` : f));
  };
  const key = (e) => {
    if (e.key === 'ArrowDown' || e.key === 'ArrowUp') {
      e.preventDefault();
      setOpen(true);
      setAt((at + (e.key === 'ArrowDown' ? 1 : -1) + offers.length + 1) % (offers.length + 1));
    } else if (e.key === 'Enter' && offers[at]) {
      e.preventDefault();
      take(offers[at]);
    } else if (e.key === 'Escape') setOpen(false);
  };
  return html`<form class="filter" role="search" onSubmit=${submit}>
    <label class="sr" for="filter">Filter: terms separated by spaces, combined by AND; or the beginning of an id</label>
    <div class="combo"><input id="filter" name="filter" data-search type="text" role="combobox" spellcheck="false" autocomplete="off" value=${text}
      placeholder="state:held workflow:order label:region=eu since:10m, or an id" aria-expanded=${offers.length > 0} aria-controls="offers" aria-autocomplete="list"
      aria-activedescendant=${offers[at] ? `offer-${at}` : undefined} onInput=${(e) => { setText(e.target.value); setOpen(true); setAt(-1); }} onKeyDown=${key}
      onFocus=${() => setOpen(true)} onBlur=${() => setOpen(false)} />
      <ul id="offers" role="listbox" aria-label="Completions" hidden=${offers.length === 0}>${offers.map((o, i) => html`<li key=${o} id=${`offer-${i}`} role="option" aria-selected=${i === at} onMouseDown=${(e) => { e.preventDefault(); take(o); }}>${o}</li>`)}</ul></div>
    <button class="primary">Show</button>
    ${splitTerms(filter).length > 0 && html`<div class="chips">${splitTerms(filter).map((t) => html`<a key=${t} class="chip" href=${tasksAddress(without(filter, t))} aria-label=${`Remove ${t}`}>${t}<span aria-hidden="true">×</span></a>`)}
      <a href="#/tasks">Clear</a></div>`}
  </form>`;
}

/** Counts of tasks by state and by workflow, each a filter. */
function Facets({ filter, workflows }) {
  if (!workflows) return null;
  const terms = splitTerms(filter);
  const workflow = terms.find((t) => nameOf(t) === 'workflow');
  const of = workflow && valueOf(workflow);
  const counted = workflows.filter((w) => !of || of === w.workflow || of === `${w.workflow}/${w.version}`);
  const states = terms.filter((t) => nameOf(t) === 'state').flatMap((t) => valueOf(t).split(','));
  const count = (s) => counted.reduce((n, w) => n + (w.tasks[s] ?? 0), 0);
  const choose = (s) => {
    const left = states.includes(s) ? states.filter((x) => x !== s) : [...states, s];
    return tasksAddress(withTerm(filter, 'state', left.length > 0 && `state:${left.join(',')}`));
  };
  const names = [...new Set(workflows.map((w) => w.workflow))];
  return html`<div class="facets"><div role="group" aria-label="Tasks by state">${taskStates.map((s) => html`<a key=${s} class="facet" data-state=${s} href=${choose(s)} aria-current=${states.includes(s) ? 'true' : undefined} title=${`state:${s}`}>
      <${State} name=${s} /><b class=${count(s) ? '' : 'faint'}>${countText(count(s))}</b></a>`)}</div>
    ${names.length > 1 && html`<label class="beside">Workflow <select onChange=${(e) => go(tasksAddress(withTerm(filter, 'workflow', e.target.value && term('workflow', e.target.value))))} value=${of ?? ''}>
      <option value="">all</option>${names.map((n) => html`<option key=${n} value=${n}>${n}</option>`)}${of && !names.includes(of) && html`<option value=${of}>${of}</option>`}</select></label>`}</div>`;
}

function Columns() {
  const toggle = (name) => {
    const hidden = hiddenColumns.value;
    hiddenColumns.value = hidden.includes(name) ? hidden.filter((h) => h !== name) : [...hidden, name];
  };
  return html`<details class="columns"><summary>Columns</summary><div>${columns.slice(1).map((c) => html`<label key=${c.name} class="beside"><input type="checkbox" checked=${!hiddenColumns.value.includes(c.name)} onChange=${() => toggle(c.name)} /> ${c.head}</label>`)}</div></details>`;
}

