// The family of a task: its children with theirs, and the items of its steps.

import { useState } from 'preact/hooks';
import { html } from './html.js';
import { countText } from './format.js';
import { useAnswer } from './live.js';
import { ErrorText, State, Table, TaskLink, Trouble } from './parts.js';
import { tasksAddress, term } from './route.js';

const every = 2000; // ms: the events of children don't name this task

const nameOf = (t) => t.step + (t.item == null ? '' : ` [${t.item}]`);

const columns = [
  { head: 'Task', kind: 'name', cell: (t) => html`<span style=${{ paddingLeft: `${(t.depth - 1) * 16}px` }}><${TaskLink} id=${t.task} /></span>` },
  { head: 'Step', kind: 'name', cell: nameOf },
  { head: 'Workflow', kind: 'name', cell: (t) => t.workflow && `${t.workflow}/${t.version}` },
  { head: 'State', cell: (t) => html`<${State} name=${t.state} />` },
  { head: 'Error', kind: 'text', cell: (t) => (t.missing ? t.missing : html`<${ErrorText} error=${t.error} />`) },
];

/** Tasks below this one. Of many items there are a few, those in trouble first. */
function Tree({ path }) {
  const { data, problem } = useAnswer(`${path}/tree`, { page_size: 200 }, { every, optional: true });
  if (!data) return html`<${Trouble} text=${problem} />`;
  return html`<${Table} label="Children" columns=${columns} rows=${data.tasks.filter((t) => t.depth > 0)} keyOf=${(t) => t.task} none="No child has started." />
    ${data.more.length > 0 && html`<p class="quiet">Left out: ${data.more.map((m) => `${countText(m.count)} ${m.items ? 'items' : 'children'} of ${m.task}, step ${m.step}`).join('; ')}.</p>`}`;
}

const itemColumns = [
  { head: 'Item', kind: 'number', cell: (i) => String(i.index) },
  { head: 'State', cell: (i) => html`<${State} name=${i.state === 'error' ? 'failed' : i.state} />` },
  { head: 'Task', kind: 'name', cell: (i) => i.task && html`<${TaskLink} id=${i.task} />` },
  { head: 'Error', kind: 'text', cell: (i) => html`<${ErrorText} error=${i.error} />` },
];

/** How many items of a step have a state, by the name of the state in the API. */
const countsOf = (n) => [['pending', n.count - n.running - n.completed - n.failed - n.undoing - n.undone], ['running', n.running], ['held', n.held], ['completed', n.completed], ['error', n.failed], ['undoing', n.undoing], ['undone', n.undone]].filter(([, count]) => count > 0);

/** The items of a step: how far they are, and a page of them. */
function Items({ path, step, n }) {
  const [state, setState] = useState('');
  const [pages, setPages] = useState(['']);
  const { data, problem } = useAnswer(`${path}/steps/${encodeURIComponent(step)}/items`, { state, page_size: 50, page_token: pages.at(-1) }, { every });
  const ended = n.completed + n.failed + n.undone;
  const show = (name) => { setState(name); setPages(['']); };
  return html`<h3>Items of ${step}</h3>
    <p><progress max=${Math.max(1, n.count)} value=${ended} aria-label=${`Items of ${step} that have ended`}></progress> ${countText(ended)} of ${countText(n.count)} have ended.</p>
    <div class="chips" role="group" aria-label=${`Items of ${step} by state`}>${countsOf(n).map(([name, count]) => html`<button type="button" key=${name} class="chip" data-items=${name} aria-pressed=${state === name} onClick=${() => show(state === name ? '' : name)}>${name === 'error' ? 'failed' : name} <b>${countText(count)}</b></button>`)}</div>
    <${Trouble} text=${problem} />
    ${data && html`<${Table} label=${`Items of ${step}`} columns=${itemColumns} rows=${data.items} keyOf=${(i) => i.index} none="No items." />
      <div class="pager">${pages.length > 1 && html`<button type="button" onClick=${() => setPages(pages.slice(0, -1))}>Back</button>`}${data.next_page_token && html`<button type="button" rel="next" onClick=${() => setPages([...pages, data.next_page_token])}>More</button>`}</div>`}`;
}

export function Family({ task, path }) {
  return html`<section data-family><div class="title"><h2>Children</h2><a href=${tasksAddress(term('parent', task.id))}>In the list of tasks</a></div>
    ${task.steps.some((s) => s.child) && html`<${Tree} path=${path} />`}
    ${task.steps.filter((s) => s.items).map((s) => html`<${Items} key=${s.id} path=${path} step=${s.id} n=${s.items} />`)}</section>`;
}
