// Commands of an operator, and signals. The scheduler decides in the end, and says why it refuses.

import { useState } from 'preact/hooks';
import { post, requestID, taskPath, token } from './api.js';
import { FormDialog, openDialog } from './dialog.js';
import { html } from './html.js';
import { typed } from './json.js';
import { who } from './who.js';
import { commandTexts, endedStates, openStates, refusals } from './texts.js';

const labels = { undo_processed: 'undo processed task' };

/** What the console says of each command, in the form of its API. A console without that answer: by the task's state. */
function listed(task, answer) {
  if (answer) return answer.commands;
  const may = { resubmit: ['error'], release: ['error'], undo: ['pending', 'processing', 'error'], cancel: openStates };
  return [
    ...Object.entries(may).map(([command, states]) => ({ command, allowed: states.includes(task.state), why: refusals[command] })),
    task.state === 'processed' && { command: 'undo', processed: true, allowed: true },
    ...(task.waiting_signals ?? []).map((name) => ({ command: 'signal', name, allowed: true })),
  ].filter(Boolean);
}

/** One button for each command: those of a task, with the reason of those that are refused. */
function buttonsOf(task, answer) {
  const all = listed(task, answer);
  const one = (command, processed = false) => {
    const mine = all.filter((c) => c.command === command && Boolean(c.processed) === processed);
    const allowed = mine.filter((c) => c.allowed);
    return { command, name: processed ? 'undo_processed' : command, allowed: allowed.length > 0, why: mine[0]?.why, forms: allowed };
  };
  const ended = endedStates.includes(task.state);
  const buttons = ['resubmit', 'release', 'undo', 'cancel'].map((c) => one(c)).filter((b) => !ended || b.allowed);
  const refund = one('undo', true);
  if (task.state === 'processed') buttons.push(refund);
  return { buttons, signals: all.filter((c) => c.command === 'signal' && (c.allowed || !ended)) };
}

/** The buttons of a task. done is called with the result of a command, and refused with why one isn't allowed. */
export function Commands({ task, answer, done, refused }) {
  if (who.value?.file) return null; // the top of the page says that it is a file
  const { buttons, signals } = buttonsOf(task, answer);
  if (buttons.length + signals.length === 0) return null;
  const open = (b) => openDialog(html`<${CommandDialog} of=${b} task=${task} done=${done} />`);
  return html`<div class="buttons commands" role="group" aria-label="Commands">
    ${buttons.map((b) => html`<button key=${b.name} type="button" data-command=${b.name} class=${b.name === 'resubmit' && b.allowed ? 'primary' : ''} aria-disabled=${!b.allowed}
      title=${b.allowed ? commandTexts[b.name] : b.why} aria-description=${b.allowed ? undefined : b.why} onClick=${() => (b.allowed ? open(b) : refused(b.why))}>${labels[b.name] ?? b.name}</button>`)}
    ${signals.map((s) => html`<button key=${`signal ${s.name}`} type="button" data-signal=${s.name} aria-disabled=${!s.allowed} title=${s.why} aria-description=${s.why}
      onClick=${() => (s.allowed ? openDialog(html`<${SignalDialog} name=${s.name} task=${task} done=${done} />`) : refused(s.why))}>signal ${s.name}</button>`)}</div>`;
}

/** Asks for the reason and sends the command. Retries of a dialog have the same request id. */
function CommandDialog({ of, task, done }) {
  const [request] = useState(requestID);
  const send = async (form) => {
    if (form.has('task') && form.get('task') !== task.id) throw new Error('This is not the id of the task.');
    const answer = await post(taskPath(task.id, `/${of.command}`), members(of, form, request), texts(form));
    done(`${of.command} was accepted: the task is ${answer.state}.`);
  };
  const label = labels[of.name] ?? of.name;
  return html`<${FormDialog} title=${`${label} ${task.id}`} label=${label} does=${commandTexts[of.name]} danger=${of.name !== 'resubmit'} send=${send}>
    <label>Reason, written to the log<input name="reason" required autofocus /></label>
    ${of.name === 'release' && html`<${Released} of=${of} task=${task} />`}
    ${of.name === 'cancel' && html`<label class="beside"><input name="keep" type="checkbox" /> Keep completed steps, don't undo them</label>`}
    ${of.name === 'undo_processed' && html`<label>The task's id, ${task.id}<input name="task" required spellcheck="false" autocomplete="off" /></label>`}
  <//>`;
}

/** The fields of a release: the step, what it counts as, and its output. */
function Released({ of, task }) {
  const held = task.steps.filter((s) => s.state === 'error' || s.undo?.state === 'error');
  const steps = of.forms.some((f) => f.step) ? [...new Set(of.forms.map((f) => f.step))] : held.map((s) => s.id);
  const [step, setStep] = useState(steps[0]);
  const offered = of.forms.filter((f) => f.step === step && f.as).map((f) => f.as);
  const byState = held.some((s) => s.id === step && s.undo?.state === 'error') ? ['undone', 'completed'] : ['completed', 'undone'];
  const as = offered.length > 0 ? offered : byState;
  return html`<label>Step<select name="step" required value=${step} onChange=${(e) => setStep(e.target.value)}>${steps.map((s) => html`<option key=${s}>${s}</option>`)}</select></label>
    <label>Counts as<select name="as">${as.map((s) => html`<option key=${s}>${s}</option>`)}</select></label>
    <label>If completed: its output as JSON, for later steps<input name="output" spellcheck="false" /></label>
    <label class="beside"><input name="none" type="checkbox" /> If completed: it has no output (null)</label>`;
}

function members(of, form, request) {
  const b = { request_id: request, reason: form.get('reason') };
  if (form.has('keep')) b.keep = true;
  if (of.name === 'undo_processed') b.processed = true;
  if (form.get('step')) Object.assign(b, { step: form.get('step'), as: form.get('as') });
  return b;
}

/** The output of a step that is released as completed: typed text, or null if the box is ticked. */
function texts(form) {
  if (form.get('as') !== 'completed') return {};
  if (form.has('none') === Boolean(form.get('output'))) throw new Error('Enter the output, or tick that there is none.');
  return { output: form.has('none') ? 'null' : typed('output', form.get('output')) };
}

/** Asks for the data and sends the signal. Retries of a dialog have the same id, so the signal counts once. */
function SignalDialog({ name, task, done }) {
  const [id] = useState(requestID);
  const send = async (form) => {
    const data = form.get('data').trim();
    const members = { id };
    if (form.get('by')) members.by = form.get('by');
    await post(taskPath(task.id, `/signals/${encodeURIComponent(name)}`), members, data ? { data: typed('data', data) } : {});
    done(`signal ${name} was sent with the id ${id}.`);
  };
  return html`<${FormDialog} title=${`signal ${name}`} label=${`signal ${name}`} does=${`Send the signal ${name}, which a step waits for.`} send=${send}>
    <label>Data (JSON), for later steps; empty: none<textarea name="data" spellcheck="false" autofocus /></label>
    ${!token.get() && html`<label>By: who sends it, written to the log<input name="by" maxlength="256" /></label>`}
  <//>`;
}
