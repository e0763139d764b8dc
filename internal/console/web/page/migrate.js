// The dialog that migrates open tasks to another version of their workflow: a dry run first, then the migration. Both are batches.

import { useEffect, useState } from 'preact/hooks';
import { post, requestID } from './api.js';
import { batchAddress, tasksText } from './batch.js';
import { FormDialog } from './dialog.js';
import { countText } from './format.js';
import { html } from './html.js';
import { State } from './parts.js';
import { go } from './route.js';

/** The dialog. filter: selects the tasks; it names their workflow. execute: a dry run came before. */
export const migrateDialog = (filter, version, execute = false) => html`<${Migrate} filter=${filter} version=${version} execute=${execute} />`;

const dryRun = { dry_run: true, reason: 'a dry run', rate: 0, canary: 0 };

function Migrate({ filter, version, execute: first }) {
  const [ids] = useState(() => ({ dry: requestID(), real: requestID() })); // retries of a dialog have the same id
  const [execute, setExecute] = useState(first);
  const [seen, setSeen] = useState(null);
  const [problem, setProblem] = useState('');
  const order = { command: 'migrate', version, filter };
  useEffect(() => {
    post('/batches', { ...order, preview: true }).then(setSeen, (e) => setProblem(e.message));
  }, []);
  const send = async (form) => {
    const { batch } = await post('/batches', execute
      ? { ...order, id: ids.real, reason: form.get('reason'), rate: Number(form.get('rate')), canary: Number(form.get('canary')) }
      : { ...order, id: ids.dry, ...dryRun });
    go(batchAddress(batch.id));
  };
  const choice = (real, text) => html`<label class="beside"><input type="radio" name="execute" value=${real ? 'yes' : 'no'} checked=${execute === real} onChange=${() => setExecute(real)} /> ${text}</label>`;
  return html`<${FormDialog} title=${`Migrate ${seen ? tasksText(seen.selected) : 'tasks'} to version ${version}`} label=${execute ? 'migrate' : 'dry run'} danger=${execute} send=${send}
    does="A task moves to the version if its history fits. The others are refused, and continue as before.">
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${seen && html`<div class="scroll" tabindex="0" role="group" aria-label="Preview"><table><tbody>${seen.groups.map((g) => html`<tr key=${g.sample}><td class="number">${countText(g.tasks)}</td><td class="name">${g.workflow}/${g.version}</td><td><${State} name=${g.state} /></td><td class="name">${g.code && html`<span class="error">${g.code}</span>`}</td></tr>`)}</tbody></table></div>`}
    <div role="radiogroup" aria-label="What to do">${choice(false, 'Dry run: check whether each task fits, and change nothing')}${choice(true, 'Migrate the tasks that fit')}</div>
    ${execute && html`<label>Reason, written to the log<input name="reason" required autofocus /></label>
      <label>Canary: number of tasks that must succeed before the others<input name="canary" type="number" min="0" max="1000" defaultValue="1" required /></label>
      <label>Commands per second, after the canary<input name="rate" type="number" min="0.1" step="any" defaultValue="50" required /></label>`}
  <//>`;
}
