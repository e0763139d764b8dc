// A command for each of the selected tasks, with the result of each.

import { useState } from 'preact/hooks';
import { post, requestID, taskPath } from './api.js';
import { closeDialog, Modal, openDialog } from './dialog.js';
import { html } from './html.js';
import { TaskLink } from './parts.js';
import { commandTexts } from './texts.js';

/** The bar of the selected tasks. chosen: a signal with their ids. done is called after a batch. */
export function batchBar(chosen, done) {
  const ids = [...chosen.value];
  if (ids.length === 0) return null;
  const open = (name) => openDialog(html`<${Batch} name=${name} ids=${ids} done=${done} />`);
  return html`<div class="batch" role="region" aria-label="Selected tasks"><b>${ids.length} selected</b>
    ${['resubmit', 'undo', 'cancel'].map((name) => html`<button key=${name} type="button" data-batch=${name} onClick=${() => open(name)}>${name}</button>`)}
    <button type="button" class="quiet" onClick=${() => { chosen.value = new Set(); }}>Clear</button></div>`;
}

/** Preview, reason, progress and results. The tasks get the command one after another, so it can be stopped. */
function Batch({ name, ids, done }) {
  const [requests] = useState(() => new Map(ids.map((id) => [id, requestID()])));
  const [results, setResults] = useState(new Map());
  const [running, setRunning] = useState(false);
  const [stop] = useState({ asked: false });
  const send = async (e) => {
    e.preventDefault();
    if (running) return;
    const reason = new FormData(e.target).get('reason');
    setRunning(true);
    stop.asked = false;
    for (const id of ids) {
      if (stop.asked) break;
      if (results.get(id)?.ok) continue;
      const result = await post(taskPath(id, `/${name}`), { request_id: requests.get(id), reason }).then((a) => ({ ok: true, said: a.state }), (p) => ({ said: p.message }));
      results.set(id, result);
      setResults(new Map(results));
    }
    setRunning(false);
    done();
  };
  const close = () => {
    stop.asked = true;
    closeDialog();
  };
  const accepted = [...results.values()].filter((r) => r.ok).length;
  return html`<${Modal} label=${`${name} ${ids.length} tasks`} onClose=${close}><form class="tall" onSubmit=${send}>
    <h2>${name} ${ids.length} ${ids.length === 1 ? 'task' : 'tasks'}</h2><p>${commandTexts[name]} Each task gets the command in turn; a task whose state refuses it stays as it is.</p>
    <label>Reason, written to the log<input name="reason" required autofocus /></label>
    <p role="status">${results.size > 0 && `${accepted} accepted, ${results.size - accepted} refused, ${ids.length - results.size} to go.`}</p>
    <div class="scroll" tabindex="0" role="group" aria-label="Tasks"><table><tbody>${ids.map((id) => html`<tr key=${id}><td class="name"><${TaskLink} id=${id} /></td><td class=${results.get(id)?.ok === false ? 'error' : ''}>${results.get(id)?.said ?? ''}</td></tr>`)}</tbody></table></div>
    <div class="buttons end"><button type="button" class="quiet" onClick=${close}>Close</button>
      ${running ? html`<button type="button" onClick=${() => { stop.asked = true; }}>Stop</button>` : html`<button data-send class=${name === 'resubmit' ? 'primary' : 'danger'}>${name}</button>`}</div>
  </form><//>`;
}
