// Orders of batches: one command to many tasks. The console runs them, so the page needn't stay open.

import { useEffect, useState } from 'preact/hooks';
import { post, requestID } from './api.js';
import { FormDialog, openDialog } from './dialog.js';
import { html } from './html.js';
import { countText, numberOf } from './format.js';
import { State, TaskLink } from './parts.js';
import { address, go } from './route.js';
import { commandTexts } from './texts.js';

const commands = ['resubmit', 'undo', 'cancel'];
const rateDefault = 50;

/** The bar of the selected tasks. chosen: a signal with their ids. filter: that of the list; with it all tasks that match can get the command. */
export function batchBar(chosen, filter) {
  const ids = [...chosen.value];
  if (ids.length === 0) return null;
  const buttons = (of, what) => commands.map((name) => html`<button key=${name} type="button" data-batch=${name} aria-label=${`${name} ${what}`} onClick=${() => orderBatch(name, of)}>${name}</button>`);
  return html`<div class="batch" role="region" aria-label="Selected tasks"><b>${ids.length} selected</b>
    ${buttons({ tasks: ids }, 'the selected tasks')}
    <button type="button" class="quiet" onClick=${() => { chosen.value = new Set(); }}>Clear</button>
    ${filter && html`<span class="beside" data-all><b>All that match</b> ${buttons({ filter }, 'all tasks that match')}</span>`}</div>`;
}

/** Opens the dialog that orders a batch. of: {tasks} or {filter}. */
export const orderBatch = (command, of) => openDialog(html`<${Order} command=${command} of=${of} />`);

function Order({ command, of }) {
  const [id] = useState(requestID);
  const [seen, setSeen] = useState(null);
  const [problem, setProblem] = useState('');
  useEffect(() => {
    post('/batches', { command, ...of, preview: true }).then(setSeen, (e) => setProblem(e.message));
  }, []);
  const send = async (form) => {
    const { batch } = await post('/batches', { id, command, ...of, reason: form.get('reason'), rate: Number(form.get('rate')), canary: Number(form.get('canary')) });
    go(batchAddress(batch.id));
  };
  return html`<${FormDialog} title=${`${command} ${seen ? tasksText(seen.selected) : 'tasks'}`} does=${`${commandTexts[command]} The console runs it as a batch, even if this page is closed.`} label=${command} danger=${command !== 'resubmit'} send=${send}>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${seen && html`<div class="scroll" tabindex="0" role="group" aria-label="Preview"><table><tbody>${seen.groups.map((g) => html`<tr key=${g.sample}><td class="number">${countText(g.tasks)}</td><td class="name">${g.workflow}/${g.version}</td><td><${State} name=${g.state} /></td><td class="name">${g.code && html`<span class="error">${g.code}${g.step && ` at ${g.step}`}</span>`}</td><td class="name"><${TaskLink} id=${g.sample} /></td></tr>`)}</tbody></table>
      ${seen.left > 0 && html`<p>${tasksText(seen.left)} left out, because their state doesn't allow the command${seen.refused.length > 0 && `: ${seen.refused.map((r) => r.task).join(', ')}`}.</p>`}</div>`}
    <label>Reason, written to the log<input name="reason" required autofocus /></label>
    <label>Canary: number of tasks that must succeed before the others<input name="canary" type="number" min="0" max="1000" value="1" required /></label>
    <label>Commands per second, after the canary<input name="rate" type="number" min="0.1" step="any" value=${rateDefault} required /></label>
    <p class="quiet">It stops when the fault recurs: when a task of the canary, or of a sample of the others, is held again.</p>
  <//>`;
}

export const tasksText = (n) => numberOf(n, 'task');
export const batchAddress = (id) => address(['batches', id]);
