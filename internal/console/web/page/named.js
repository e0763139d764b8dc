// Commands to definitions that have a name: schedules and intakes.

import { post } from './api.js';
import { FormDialog } from './dialog.js';
import { html } from './html.js';
import { CommandButton, refusal } from './rights.js';

const results = {
  paused: (name) => `${name} is paused.`, resumed: (name) => `${name} is resumed.`, unchanged: (name) => `${name} didn't change.`,
  asked: (name) => `A supervisor starts a task of ${name}.`,
};

/** Asks for the reason and sends a command. kind: schedule or intake. does: what the command does. done is called with the result, as a sentence. */
function Order({ kind, name, command, does, done }) {
  const send = async (form) => {
    const answer = await post(`/${kind}s/${encodeURIComponent(name)}/${command}`, { reason: form.get('reason') });
    done(results[answer.result]?.(name) ?? answer.result);
  };
  return html`<${FormDialog} title=${`${command} ${name}`} label=${command} does=${does} send=${send}>
    <label>Reason, written to the log<input name="reason" required autofocus /></label><//>`;
}

/**
 * The buttons of a definition. commands: each with its place, which it shares with the command that takes it back, and what it does.
 * fault: why it has no effect; empty: it has one. said is called with the result of a command, or with why it can't be sent.
 */
export const Commands = ({ kind, name, commands, said, done }) => html`<div class="buttons" role="group" aria-label=${`Commands to ${name}`}>
  ${commands.map(({ command, place, does, fault }) => html`<${CommandButton} key=${place} data-command=${command} aria-label=${`${command} ${name}`} why=${refusal(`${command} it`) || fault} refused=${said}
    dialog=${() => html`<${Order} kind=${kind} name=${name} command=${command} does=${does} done=${done} />`}>${command}<//>`)}</div>`;
