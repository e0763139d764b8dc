// Commands of an operator. The scheduler refuses what the task's state doesn't allow, and says why.

import { post, requestID, taskPath } from './api.js';
import { openDialog } from './dialog.js';
import { el, typed } from './dom.js';
import { signalButtons } from './signals.js';

const open = ['pending', 'processing', 'undoing', 'error'];

// A command is offered in these states. Its form has fields besides the reason.
const all = [
  { name: 'resubmit', does: 'Run the held step again, with a new failure count.', states: ['error'], fields: () => [] },
  { name: 'release', does: 'Record what was settled by hand: the step counts as completed or as undone.', states: ['error'], fields: settled },
  { name: 'undo', does: 'Undo the completed steps of the task.', states: ['pending', 'processing', 'error'], fields: () => [] },
  { name: 'undo', label: 'undo processed task', does: 'Undo the completed steps of a task that has ended: refund it. The task ends as undone.', states: ['processed'], fields: named },
  { name: 'cancel', does: 'Start no further steps, undo the completed ones, and end the task.', states: open, fields: kept },
];

/** The buttons of a task: its commands, and the signals that it waits for. done is called with the result of a command. */
export function commands(task, done) {
  const offered = all.filter((c) => c.states.includes(task.state));
  return offered.length > 0 && el('div', { class: 'buttons' },
    offered.map((c) => el('button', { type: 'button', onclick: () => ask(c, task, done) }, c.label ?? c.name)),
    signalButtons(task, done));
}

function settled(task) {
  const steps = task.steps.filter((s) => s.state === 'error' || s.undo?.state === 'error');
  const as = steps.some((s) => s.undo?.state === 'error') ? ['undone', 'completed'] : ['completed', 'undone'];
  return [
    el('label', {}, 'Step', el('select', { name: 'step', required: true }, steps.map((s) => el('option', {}, s.id)))),
    el('label', {}, 'Counts as', el('select', { name: 'as' }, as.map((s) => el('option', {}, s)))),
    el('label', {}, 'If completed: its output as JSON, for later steps', el('input', { name: 'output', spellcheck: 'false' })),
    el('label', { class: 'beside' }, el('input', { name: 'none', type: 'checkbox' }), 'If completed: it has no output (null)'),
  ];
}

function kept() {
  return [el('label', { class: 'beside' }, el('input', { name: 'keep', type: 'checkbox' }), 'Keep completed steps, don\'t undo them')];
}

/** The task's id, typed again, so that nobody refunds by accident. */
function named(task) {
  return [el('label', {}, `The task's id, ${task.id}`, el('input', { name: 'task', required: true, spellcheck: 'false', autocomplete: 'off' }))];
}

/** Asks for the reason and sends the command. Retries of a dialog have the same request id. */
function ask(command, task, done) {
  const request = requestID();
  openDialog(command.label ?? command.name, command.does, [
    el('label', {}, 'Reason, written to the log', el('input', { name: 'reason', required: true })),
    command.fields(task),
  ], async (form) => {
    if (form.has('task') && form.get('task') !== task.id) throw new Error('This is not the id of the task.');
    const answer = await post(taskPath(task.id, `/${command.name}`), members(form, request), texts(form));
    done(`${command.name} was accepted: the task is ${answer.state}.`);
  });
}

function members(form, request) {
  const b = { request_id: request, reason: form.get('reason') };
  if (form.has('keep')) b.keep = true;
  if (form.has('task')) b.processed = true;
  if (form.get('step')) Object.assign(b, { step: form.get('step'), as: form.get('as') });
  return b;
}

/** The output of a step that is released as completed: typed text, or null if the box is ticked. */
function texts(form) {
  if (form.get('as') !== 'completed') return {};
  if (form.has('none') === Boolean(form.get('output'))) throw new Error('Enter the output, or tick that there is none.');
  return { output: form.has('none') ? 'null' : typed('output', form.get('output')) };
}
