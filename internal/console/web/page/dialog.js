// Dialogs with a form that sends one request.

import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { html } from './html.js';

/** The open dialog: a component's vnode; null: none. */
export const opened = signal(null);
let opener = null;

export function openDialog(content) {
  opener = document.activeElement;
  opened.value = content;
}

export function closeDialog() {
  document.querySelector('dialog[open]')?.close(); // while it is modal, nothing else takes the focus
  opened.value = null;
  if (opener?.isConnected) opener.focus();
}

addEventListener('hashchange', () => opened.value && closeDialog()); // it belongs to the screen that was left

/** A modal dialog. forced: Esc doesn't close it. */
export function Modal({ label, forced, onClose = closeDialog, children }) {
  const at = useRef();
  useEffect(() => { at.current.showModal(); }, []);
  return html`<dialog ref=${at} aria-label=${label} onCancel=${(e) => { e.preventDefault(); if (!forced) onClose(); }}>${children}</dialog>`;
}

/**
 * A dialog with a form. title; does: what it does; label: of the button that sends; danger: the button's look. send(form) sends
 * the FormData. The dialog shows what send throws, and closes if it throws nothing. While send runs, the button is disabled.
 */
export function FormDialog({ title, does, label, danger, send, children }) {
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  const submit = async (e) => {
    e.preventDefault();
    if (busy) return;
    setBusy(true);
    setProblem('');
    try {
      await send(new FormData(e.target));
      closeDialog();
    } catch (fault) {
      setProblem(fault.message);
      setBusy(false);
    }
  };
  return html`<${Modal} label=${title}><form class="tall" onSubmit=${submit}>
    <h2>${title}</h2><p>${does}</p>
    <div role="alert">${problem && html`<p class="problem">${problem}</p>`}</div>
    ${children}
    <div class="buttons end"><button type="button" class="quiet" onClick=${closeDialog}>Close</button>
      <button data-send class=${danger ? 'danger' : 'primary'} aria-disabled=${busy}>${label}</button></div>
  </form><//>`;
}
