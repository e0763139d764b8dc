// Signals that running steps of a task wait for.

import { post, requestID, taskPath, token } from './api.js';
import { openDialog } from './dialog.js';
import { el, typed } from './dom.js';

/** The buttons of a task, one for each signal that it waits for. done is called with the result. */
export const signalButtons = (task, done) => (task.waiting_signals ?? []).map((name) => (
  el('button', { type: 'button', onclick: () => ask(name, task, done) }, `signal ${name}`)));

/** Asks for the data and sends the signal. Retries of a dialog have the same id, so the signal counts once. */
function ask(name, task, done) {
  const id = requestID();
  openDialog(`signal ${name}`, `Send the signal ${name}, which a step waits for.`, [
    el('label', {}, 'Data (JSON), for later steps; empty: none', el('textarea', { name: 'data', spellcheck: 'false' })),
    !token.get() && el('label', {}, 'By: who sends it, written to the log', el('input', { name: 'by', maxlength: 256 })),
  ], async (form) => {
    const data = form.get('data').trim();
    const members = { id };
    if (form.get('by')) members.by = form.get('by');
    await post(taskPath(task.id, `/signals/${encodeURIComponent(name)}`), members, data ? { data: typed('data', data) } : {});
    done(`signal ${name} was sent with the id ${id}.`);
  });
}
