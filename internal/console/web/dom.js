// Elements of pages. Text of users is inserted as text only, never as markup.

/** An element with attributes, listeners (on...) and children: nodes, or text. */
export function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, '');
    else if (value !== false && value != null) e.setAttribute(name, value);
  }
  e.append(...shown(children));
  return e;
}

/**
 * A table. A column is {head, cell: row => text or node, kind: class of its cells}. none: the text to show without rows.
 */
export function table(columns, rows, none) {
  if (rows.length === 0) return el('p', { class: 'quiet' }, none);
  const cell = (tag, c, content) => el(tag, { class: c.kind, scope: tag === 'th' && 'col' }, content);
  return el('div', { class: 'wide' }, el('table', {},
    el('thead', {}, el('tr', {}, columns.map((c) => cell('th', c, c.head)))),
    el('tbody', {}, rows.map((r) => el('tr', {}, columns.map((c) => cell('td', c, c.cell(r) ?? '')))))));
}

/** A list of terms with values; empty ones are left out. */
export function terms(all) {
  return el('dl', {}, all.filter(([, said]) => said != null && said !== '').map(([term, said]) => [el('dt', {}, term), el('dd', {}, said)]));
}

/** Replaces the children of an element. */
export const fill = (element, ...children) => element.replaceChildren(...shown(children));

const shown = (children) => children.flat(Infinity).filter((c) => c != null && c !== false);

const looks = {
  processed: 'good', completed: 'good', caught: 'good', closed: 'good',
  error: 'bad', failed: 'bad', open: 'bad', dead: 'bad',
  processing: 'busy', running: 'busy', undoing: 'busy', waiting: 'busy', half_open: 'busy',
};

/** A state in its colour. */
export const state = (name) => el('span', { class: looks[name] ?? 'quiet' }, name);

/** Typed JSON text, checked and unchanged. what names the field. */
export function typed(what, text) {
  try {
    JSON.parse(text);
  } catch (e) {
    throw new Error(`The ${what} isn't JSON: ${e.message}`);
  }
  return text;
}

/** A value as JSON. */
export const json = (value) => el('pre', {}, JSON.stringify(value, null, 2));

/** An instant in local time, to the second or (exact) to the ms. The title has it in UTC. */
export function instant(at, exact = false) {
  if (!at) return '';
  const d = new Date(at);
  const two = (n) => String(n).padStart(2, '0');
  const day = `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
  const time = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  const ms = `.${String(d.getMilliseconds()).padStart(3, '0')}`;
  return el('time', { datetime: at, title: at }, `${day} ${time}${exact ? ms : ''}`);
}

/** A duration in ms, formatted. */
export function duration(ms) {
  if (ms == null || Number.isNaN(ms)) return '';
  if (Math.abs(ms) < 1000) return `${ms} ms`;
  if (Math.abs(ms) < 60_000) return `${(ms / 1000).toFixed(3).replace(/\.?0+$/, '')} s`;
  const s = Math.round(ms / 1000);
  const h = Math.trunc(s / 3600);
  return `${h ? `${h} h ` : ''}${Math.trunc((s % 3600) / 60)} min ${Math.abs(s % 60)} s`;
}

/** A link to a task. */
export const taskLink = (id) => el('a', { href: `#/tasks/${encodeURIComponent(id)}`, title: id }, id);
