// Parts of screens: one component each for a state, an instant, a duration, an id, an error, JSON, a command line, a table.

import { useEffect, useRef, useState } from 'preact/hooks';
import { html } from './html.js';
import { clock, coarse, durationText, localText, now, relativeText, shareText, utcText } from './format.js';
import { layout } from './json.js';
import { taskAddress } from './route.js';
import { lacks, states } from './texts.js';

// Icons of 16 by 16, by look. Each has a shape of its own, so that no state is known by its colour only.
const icons = {
  pending: 'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z',
  busy: 'M8 2.5a5.5 5.5 0 1 0 5.5 5.5M8 5v3.2l2 1.3',
  good: 'M3 8.5l3.2 3.2L13 4.8',
  held: 'M5.2 2.5h5.6l2.7 2.7v5.6l-2.7 2.7H5.2l-2.7-2.7V5.2ZM6.4 5.6v4.8M9.6 5.6v4.8',
  failed: 'M4 4l8 8M12 4l-8 8',
  undoing: 'M3 6.5h6.5a3.5 3.5 0 1 1 0 7H7M5.8 3.5L3 6.5l2.8 3',
  undone: 'M3 8h10M6 4.8L3 8l3 3.2',
  waiting: 'M4.5 2.5h7M4.5 13.5h7M5 2.5c0 3.5 6 7.5 6 11M11 2.5c0 3.5-6 7.5-6 11',
  cancelled: 'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11ZM4.2 4.2l7.6 7.6',
};
const others = {
  copy: 'M5.5 5.5h7v7h-7ZM3.5 10.5v-7h7',
  search: 'M7 3a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM10 10l3.5 3.5',
  key: 'M10.5 2.5a3 3 0 1 0 0 6 3 3 0 0 0 0-6ZM8.300 7.700L3 13M5 11l1.5 1.5',
};

export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${icons[name] ?? others[name]} /></svg>`;

export const lookOf = (name) => states[name]?.[1] ?? 'pending';
export const wordOf = (name) => states[name]?.[0] ?? name;

/** A state: its icon and its word in its colour. */
export const State = ({ name, big }) => name && html`<span class=${`state is-${lookOf(name)}${big ? ' big' : ''}`}><${Icon} name=${lookOf(name)} />${wordOf(name)}</span>`;

/** An instant, as the reader has chosen. The title has all three forms. */
export function Instant({ at, exact }) {
  if (!at) return null;
  const shown = { local: localText, utc: utcText, relative: relativeText }[clock.value](at, clock.value === 'relative' ? undefined : exact);
  return html`<time datetime=${at} title=${`${localText(at, true)} here\n${utcText(at, true)}`}>${shown}</time>`;
}

export const Duration = ({ ms }) => (ms == null ? null : html`<span class="duration">${durationText(ms)}</span>`);

/** Time that has passed since an instant, which grows while the page is visible. */
export const Ago = ({ at }) => (at ? html`<span title=${localText(at, true)}>${coarse(Math.max(0, now.value - Date.parse(at)))}</span>` : null);

/** A button that copies text. */
export function Copy({ text, label = 'Copy', children }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      copyBySelection(text);
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class=${children ? 'quiet' : 'icon-only'} aria-label=${children ? undefined : label} title=${label} onClick=${copy}>
    <${Icon} name=${done ? 'good' : 'copy'} />${children}</button>`;
}

/** Without a secure context there is no clipboard API. */
function copyBySelection(text) {
  const area = document.createElement('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

/** A link to a task. */
export const TaskLink = ({ id }) => html`<a class="id" data-open href=${taskAddress(id)} title=${id}>${id}</a>`;

export const errorText = (e) => (e ? [e.code, e.message].filter(Boolean).join(': ') : '');

/** An error: its code, and its message. */
export const ErrorText = ({ error, title }) => error && html`<span class="error" title=${title}><b>${error.code}</b>${error.message && `: ${error.message}`}</span>`;

const colouredMax = 20_000; // characters

/** Data of users, as it was written: only the space between its tokens is laid out. */
export function Json({ raw, label }) {
  const text = raw?.text ?? 'null';
  const pieces = layout(text);
  const whole = pieces.map((p) => p[1]).join('');
  return html`<div class="json"><pre tabindex="0" aria-label=${label ?? 'JSON'}>${text.length > colouredMax ? whole : pieces.map(([kind, said]) => (kind === 'space' ? said : html`<span class=${kind}>${said}</span>`))}</pre>
    <${Copy} text=${text} label="Copy the JSON" /></div>`;
}

/** A command line, to copy. */
export const CommandLine = ({ text, label }) => html`<div class="command"><span class="label">${label}</span><code>${text}</code><${Copy} text=${text} label=${`Copy: ${label}`} /></div>`;

export const Trouble = ({ text }) => text && html`<p class="problem" role="alert">${text}</p>`;
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;
export const Loading = ({ what = 'the answer' }) => html`<div class="loading" role="status"><span class="sr">Loading ${what}</span><i></i><i></i><i></i></div>`;

/** A notice for incomplete answers. */
export function Incomplete({ answer }) {
  const list = answer?.incomplete ?? [];
  if (list.length === 0) return null;
  return html`<p class="problem">Incomplete: ${list.map((i) => (lacks[i.why] ?? lacks.restoring)(i, shareText(i.restored))).join('; ')}.</p>`;
}

/**
 * A table. A column is {head, cell: row => content, kind: class of its cells}. keyOf(row) names a row for as long as it
 * exists. chosen, optional: {has(key), toggle(key), all()} for boxes. none: what to show without rows.
 */
export function Table({ label, columns, rows, keyOf, none, chosen, rowClass }) {
  const box = useRef();
  useEffect(() => { // a region that scrolls must be reachable by keys
    const e = box.current;
    if (e) e.tabIndex = e.scrollWidth > e.clientWidth ? 0 : -1;
  });
  if (rows.length === 0) return html`<${Empty}>${none}<//>`;
  return html`<div class="table" ref=${box} role="region" aria-label=${label}><table data-rows>
    <thead><tr>${chosen && html`<th class="box"><input type="checkbox" aria-label="Select all rows" checked=${rows.every((r) => chosen.has(keyOf(r)))} onChange=${chosen.all} /></th>`}
      ${columns.map((c) => html`<th key=${c.head} scope="col" class=${c.kind}>${c.head || html`<span class="sr">${c.name}</span>`}</th>`)}</tr></thead>
    <tbody>${rows.map((r) => {
    const key = keyOf(r);
    return html`<tr key=${key} data-key=${key} tabindex="-1" class=${rowClass?.(r)} aria-selected=${chosen ? chosen.has(key) : undefined}>
      ${chosen && html`<td class="box"><input type="checkbox" aria-label=${`Select ${key}`} checked=${chosen.has(key)} onChange=${() => chosen.toggle(key)} /></td>`}
      ${columns.map((c) => html`<td key=${c.head} class=${c.kind}>${c.cell(r)}</td>`)}</tr>`;
  })}</tbody></table></div>`;
}

/** A list of terms with values; empty ones are left out. */
export const Terms = ({ all }) => html`<dl>${all.filter(([, said]) => said != null && said !== '' && said !== false).map(([name, said]) => html`<div key=${name}><dt>${name}</dt><dd>${said}</dd></div>`)}</dl>`;
