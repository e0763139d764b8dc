// What an operator can tell a task. What its state doesn't allow is refused by the scheduler, which says why.

import { post, requestID, taskPath } from './api.js';
import { el, fill, typed } from './dom.js';

const open = ['pending', 'processing', 'undoing', 'error'];

// A command is offered in states; its form has fields beside the reason.
const all = [
  { name: 'resubmit', does: 'Run the step in error again, with a fresh failure count.', states: ['error'], fields: () => [] },
  { name: 'release', does: 'State what was settled by hand: the step counts as completed, or as undone.', states: ['error'], fields: settled },
  { name: 'undo', does: 'Undo what the task has done.', states: ['pending', 'processing', 'error'], fields: () => [] },
  { name: 'cancel', does: 'Start nothing more of the task, undo what it has done, and end it.', states: open, fields: kept },
];

/** The buttons for a task; done is called with what became of a command. */
export function commands(task, done) {
  const offered = all.filter((c) => c.states.includes(task.state));
  return offered.length > 0 && el('div', { class: 'buttons' },
    offered.map((c) => el('button', { type: 'button', onclick: () => ask(c, task, done) }, c.name)));
}

function settled(task) {
  const steps = task.steps.filter((s) => s.state === 'error' || s.undo?.state === 'error');
  const as = steps.some((s) => s.undo?.state === 'error') ? ['undone', 'completed'] : ['completed', 'undone'];
  return [
    el('label', {}, 'Step', el('select', { name: 'step', required: true }, steps.map((s) => el('option', {}, s.id)))),
    el('label', {}, 'Counts as', el('select', { name: 'as' }, as.map((s) => el('option', {}, s)))),
    el('label', {}, 'As completed: its output, as JSON, which later steps read', el('input', { name: 'output', spellcheck: 'false' })),
    el('label', { class: 'beside' }, el('input', { name: 'none', type: 'checkbox' }), 'As completed: it has no output (null)'),
  ];
}

function kept() {
  return [el('label', { class: 'beside' }, el('input', { name: 'keep', type: 'checkbox' }), 'Leave what completed')];
}

/** Asks for the reason, and commands. The same dialog sends the same request id, however often it has to try. */
function ask(command, task, done) {
  const request = requestID();
  const said = el('div', { role: 'alert' });
  const send = el('button', {}, command.name);
  const dialog = el('dialog', { onclose: () => dialog.remove() },
    el('form', { class: 'tall', onsubmit },
      el('p', {}, command.does), said,
      el('label', {}, 'Why, for the log', el('input', { name: 'reason', required: true })),
      command.fields(task),
      el('div', { class: 'buttons' }, send, el('button', { type: 'button', onclick: () => dialog.close() }, 'Leave it'))));

  async function onsubmit(e) {
    e.preventDefault();
    send.disabled = true;
    try {
      const form = new FormData(e.target);
      const answer = await post(taskPath(task.id, `/${command.name}`), members(form, request), texts(form));
      done(`${command.name} was accepted: the task is ${answer.state}.`);
      dialog.close();
    } catch (problem) {
      fill(said, el('p', { class: 'problem' }, problem.message));
      send.disabled = false;
    }
  }

  document.body.append(dialog);
  dialog.showModal();
}

function members(form, request) {
  const b = { request_id: request, reason: form.get('reason') };
  if (form.has('keep')) b.keep = true;
  if (form.get('step')) Object.assign(b, { step: form.get('step'), as: form.get('as') });
  return b;
}

/** The output of a step that is released as completed: it is typed, or the box says that there is none. */
function texts(form) {
  if (form.get('as') !== 'completed') return {};
  if (form.has('none') === Boolean(form.get('output'))) throw new Error('Type the output, or tick that there is none.');
  return { output: form.has('none') ? 'null' : typed('output', form.get('output')) };
}
