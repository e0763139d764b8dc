// Submits a task.

import { useState } from 'preact/hooks';
import { post, requestID } from './api.js';
import { html } from './html.js';
import { typed } from './json.js';
import { useAnswer } from './live.js';
import { Trouble } from './parts.js';
import { go, taskAddress } from './route.js';

export function Submit() {
  const { data, problem } = useAnswer('/workflows', {}, { on: ['workflows'] });
  const [said, setSaid] = useState('');
  const [busy, setBusy] = useState(false);
  const [id] = useState(requestID);
  const names = [...new Set((data?.workflows ?? []).map((w) => w.workflow))];
  const send = async (e) => {
    e.preventDefault();
    if (busy) return;
    const form = new FormData(e.target);
    setBusy(true);
    setSaid('');
    try {
      const labels = Object.fromEntries(form.get('labels').split(/\s+/).filter(Boolean).map((l) => l.split(/=(.*)/s, 2)));
      const members = { id: form.get('id'), workflow: form.get('workflow') };
      if (Object.keys(labels).length > 0) members.labels = labels;
      await post('/tasks', members, { input: typed('input', form.get('input')) });
      go(taskAddress(form.get('id')));
    } catch (fault) {
      setSaid(fault.message);
      setBusy(false);
    }
  };
  return html`<${Trouble} text=${problem} /><div role="alert">${said && html`<p class="problem">${said}</p>`}</div>
    ${data && names.length === 0 && html`<p class="empty">No workflow was applied yet. Apply one: ${'`'}waybill workflow apply FILE${'`'}</p>`}
    <form class="tall" onSubmit=${send}>
      <label>Workflow<select name="workflow" required>${names.map((n) => html`<option key=${n}>${n}</option>`)}</select></label>
      <label>Id; submitting the same task again changes nothing<input name="id" required defaultValue=${id} maxlength="256" spellcheck="false" /></label>
      <label>Labels: NAME=VALUE, with spaces between them; may be empty<input name="labels" spellcheck="false" /></label>
      <label>Input (JSON)<textarea name="input" spellcheck="false" defaultValue="{}" /></label>
      <div class="buttons"><button data-send class="primary" aria-disabled=${busy}>Submit</button></div>
    </form>`;
}
