// A dialog with a form that sends one request.

import { el, fill } from './dom.js';

/**
 * Opens a dialog. label: of the button that sends; does: what that does; fields: of the form. send(form) sends the
 * FormData. The dialog shows what send throws, and closes if it throws nothing. While send runs, the button is disabled.
 */
export function openDialog(label, does, fields, send) {
  const said = el('div', { role: 'alert' });
  const button = el('button', {}, label);
  const dialog = el('dialog', { onclose: () => dialog.remove() },
    el('form', { class: 'tall', onsubmit },
      el('p', {}, does), said, fields,
      el('div', { class: 'buttons' }, button, el('button', { type: 'button', onclick: () => dialog.close() }, 'Close'))));

  async function onsubmit(e) {
    e.preventDefault();
    button.disabled = true;
    try {
      await send(new FormData(e.target));
      dialog.close();
    } catch (problem) {
      fill(said, el('p', { class: 'problem' }, problem.message));
      button.disabled = false;
    }
  }

  document.body.append(dialog);
  dialog.showModal();
}
