// Keys of the page. They work on what the screen has: rows of a table, a field to filter, boxes to select.

import { signal } from '@preact/signals';
import { closeDialog, openDialog, opened, Modal } from './dialog.js';
import { clock, clocks } from './format.js';
import { html } from './html.js';
import { go } from './route.js';
import { keysHelp } from './texts.js';

const screens = { n: '#/', t: '#/tasks', h: '#/held', b: '#/batches', w: '#/workflows', a: '#/agents', d: '#/deadletters', l: '#/log', s: '#/submit' };
const prefixFor = 1500; // ms in which g waits for its second key

/** g was pressed, and the next key names a screen. */
export const prefix = signal(false);
let timer;

function setPrefix(on) {
  clearTimeout(timer);
  prefix.value = on;
  if (on) timer = setTimeout(() => { prefix.value = false; }, prefixFor);
}

function move(by) {
  const rows = Array.from(document.querySelectorAll('main [data-rows] tbody tr'));
  if (rows.length === 0) return;
  const at = rows.indexOf(document.activeElement?.closest('tr'));
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: 'nearest' });
}

const row = () => document.activeElement?.closest('tr[data-key]');

const actions = {
  j: () => move(1),
  k: () => move(-1),
  x: () => row()?.querySelector('input[type=checkbox]')?.click(),
  t: () => { clock.value = clocks[(clocks.indexOf(clock.value) + 1) % clocks.length]; },
  '/': () => document.querySelector('main [data-search]')?.focus(),
  '?': () => openDialog(html`<${Help} />`),
};

const Help = () => html`<${Modal} label="Keys"><div class="tall"><h2>Keys</h2>
  <dl class="keys">${keysHelp.map(([key, does]) => html`<div key=${key}><dt>${key.split(' ').map((k) => html`<kbd>${k}</kbd> `)}</dt><dd>${does}</dd></div>`)}</dl>
  <div class="buttons end"><button type="button" autofocus onClick=${closeDialog}>Close</button></div></div><//>`;

function pressed(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || opened.value) return;
  const field = e.target.closest?.('input:not([type=checkbox]):not([type=range]), textarea, select');
  if (e.key === 'Escape') {
    setPrefix(false);
    if (field) field.blur();
    return;
  }
  if (field) return;
  if (prefix.value) {
    setPrefix(false);
    if (screens[e.key]) {
      e.preventDefault();
      go(screens[e.key]);
      return;
    }
  }
  if (e.key === 'g') setPrefix(true);
  else if (e.key === 'Enter' && e.target.matches?.('tr[data-key]')) e.target.querySelector('[data-open]')?.click();
  else if (actions[e.key]) {
    e.preventDefault();
    actions[e.key]();
  }
}

addEventListener('keydown', pressed);
